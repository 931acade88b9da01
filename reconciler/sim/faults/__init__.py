"""What goes wrong in a run: each fault by its name, one occurrence at a time."""

from reconciler.sim.faults import (
    clocks,
    configs,
    daemons,
    disks,
    leases,
    machines,
    networks,
    processes,
    requests,
    watches,
)
from reconciler.sim.faults.registry import FAULTS, Fault, Injector, UnknownFault, World, parse

__all__ = [
    "FAULTS",
    "Fault",
    "Injector",
    "UnknownFault",
    "World",
    "clocks",
    "configs",
    "daemons",
    "disks",
    "leases",
    "machines",
    "networks",
    "parse",
    "processes",
    "requests",
    "watches",
]
