"""What `decide` may answer: one step at a time; the shell carries it out and asks again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconciler.api.node import NodeState, Problem, Stage


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing to do until something changes, or until `until`."""

    reason: str
    message: str = ""
    until: datetime | None = None
    stuck: Problem | None = None
    """The deadline has passed; still waiting."""
    trouble: Problem | None = None
    """What is wrong meanwhile, before any deadline: a person may be needed, or it heals by itself."""
    wants_slot: bool = False


@dataclass(frozen=True, kw_only=True)
class Move:
    """One PATCH of the Node: a new state (None: absent), its labels, and what goes with it."""

    state: NodeState | None
    reason: str
    message: str = ""
    drop_taints: bool = False
    clear_label: str = ""
    """Key of a done label that is taken off in the same patch."""
    clear_retry: bool = False


@dataclass(frozen=True)
class MakePod:
    """Make the phase pod of this state; its name follows from the state, so making it twice makes one."""

    state: NodeState


@dataclass(frozen=True)
class EndPod:
    """Delete a phase pod; grace 0 only for one of which nothing runs."""

    uid: str
    stage: Stage
    grace: int


@dataclass(frozen=True)
class AskUse:
    """List, uncached, the running pods that use a handler of ours, and ask again."""


Decision = Wait | Move | MakePod | EndPod | AskUse
