"""Every invariant that is checked."""

from __future__ import annotations

from reconciler.sim.invariants.actors import OneActor
from reconciler.sim.invariants.barrier import Barrier
from reconciler.sim.invariants.base import Invariant
from reconciler.sim.invariants.claims import Claims
from reconciler.sim.invariants.daemons import OneRestart, OurStarts
from reconciler.sim.invariants.deadlines import Deadlines
from reconciler.sim.invariants.foreign import BinariesLast, FinalizerLast, ForeignMarks, ForeignText
from reconciler.sim.invariants.in_use import InUse
from reconciler.sim.invariants.locked import Locked
from reconciler.sim.invariants.progress import Attempts, Evidence, Once
from reconciler.sim.invariants.slots import Slots
from reconciler.sim.invariants.writes import BoundedLoad, BoundedText, Fenced, OnlyTheLeader

INVARIANTS: tuple[type[Invariant], ...] = (
    Slots,
    OurStarts,
    OneRestart,
    OneActor,
    Barrier,
    ForeignMarks,
    ForeignText,
    FinalizerLast,
    Claims,
    BinariesLast,
    InUse,
    Locked,
    Evidence,
    Attempts,
    Deadlines,
    OnlyTheLeader,
    Fenced,
    Once,
    BoundedLoad,
    BoundedText,
)
"""In the order of design section 11."""


def describe() -> str:
    """A line for each: its name, and what must hold."""
    return "\n".join(f"{one.name}: {(one.__doc__ or '').strip().splitlines()[0]}" for one in INVARIANTS)
