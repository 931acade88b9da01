"""Invariants that watch the simulated world, never our own state (design section 11).

`Observer(cluster)` is told of every step of the world (writes of the API store, requests, containerds, containers,
an agent's steps on the disk) and collects breaches in `broken`. Each invariant is phrased by its cause: what we did,
knowing what, so that no system is asked for the impossible. `describe()` lists them.
`await rest(cluster)` is asked when faults have ended.
"""

from reconciler.sim.invariants.base import Breach, Invariant
from reconciler.sim.invariants.catalogue import INVARIANTS, describe
from reconciler.sim.invariants.observer import Observer
from reconciler.sim.invariants.rest import rest

__all__ = ["INVARIANTS", "Breach", "Invariant", "Observer", "describe", "rest"]
