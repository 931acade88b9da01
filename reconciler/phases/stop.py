"""What goes on while a person has stopped everything: what ends, and nothing that begins. Pure.

Held are new phase pods, kills of pods that still run (a kill runs hooks of the payload's), transitions into a
stage in which somebody works, and slots. Ends are recorded, labels are kept true, and objects of pods that are over
in CRI are removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from reconciler.api.node import AGENT_STAGES, POD_STAGES, NodeState
from reconciler.phases.decision import AskUse, Decision, EndPod, MakePod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Stop

WORK = AGENT_STAGES | POD_STAGES
"""Stages in which an agent or a payload works; verify only looks on."""


def held(facts: Facts, decision: Decision) -> Decision:
    """`decision`, or a wait in place of one by which something begins."""
    wants = isinstance(decision, AskUse) or (isinstance(decision, Wait) and decision.wants_slot)
    if not wants and not begins(facts.state, decision):
        return decision
    return Wait(reason="Stopped", awaits=Signal.RESUME, message=facts.stopped)


def begins(state: NodeState | None, decision: Decision) -> bool:
    """Whether `decision`, at `state`, puts somebody to work."""
    match decision:
        case MakePod():
            return True
        case EndPod(grace=grace):
            return grace > 0
        case Move(state=NodeState() as new):
            return (new.stage in WORK and not _same_work(state, new)) or (new.draining and not _draining(state))
    return False


def still(limit: datetime, begin: datetime, stops: Iterable[Stop]) -> datetime | None:
    """A deadline that began to run at `begin`, later by the time for which everything was stopped.

    None: it stands still now. One that had passed before a stop has passed.
    """
    for stop in stops:
        if stop.begin >= limit:
            break
        if stop.end is None:
            return None
        if stop.end > begin:
            limit += stop.end - max(stop.begin, begin)
    return limit


def _same_work(old: NodeState | None, new: NodeState) -> bool:
    return old is not None and (old.stage, old.target, old.attempt) == (new.stage, new.target, new.attempt)


def _draining(state: NodeState | None) -> bool:
    return state is not None and state.draining
