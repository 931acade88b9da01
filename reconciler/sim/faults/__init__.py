"""What goes wrong in a run: each fault by its name, one occurrence at a time."""

from reconciler.sim.faults import (
    admins,
    clocks,
    configs,
    daemons,
    disks,
    goals,
    leases,
    machines,
    networks,
    payloads,
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
    "admins",
    "clocks",
    "configs",
    "daemons",
    "disks",
    "goals",
    "leases",
    "machines",
    "networks",
    "parse",
    "payloads",
    "processes",
    "requests",
    "watches",
]
