"""What `decide` may answer: one step at a time; the shell carries it out and asks again."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from reconciler.api.node import NodeState, Problem, Stage


class Signal(enum.StrEnum):
    """The one thing that a waiting node waits for. Closed: what is said of each is in `controller.sentences`."""

    NOTHING = "nothing"
    """At rest, where it should be."""
    PERSON = "person"
    """Given up on: a new revision, or a retry."""
    ANOTHER_NODE = "another-node"
    """This one can never take part."""
    HANDLER_FREE = "handler-free"
    """That CRI no longer serves a handler of another installer."""
    QUIET_HOUR = "quiet-hour"
    """That the repairs of the last hour are over an hour old."""
    SLOT = "slot"
    NODE_READY = "node-ready"
    AGENT = "agent"
    """A ready agent pod on the node."""
    OTHER_RUNTIME = "other-runtime"
    """That the runtime at work on this node is done."""
    AGENT_REPORT = "agent-report"
    """The agent's final answer to this stage and attempt."""
    CONTAINERD = "containerd"
    """That CRI serves."""
    CONFIG_MENDED = "config-mended"
    """That containerd's configuration, which somebody breaks again and again, would start."""
    BAKE = "bake"
    """Time in good health."""
    BACKOFF = "backoff"
    """Time between two tries."""
    POD_STARTED = "pod-started"
    """That the phase pod's container runs."""
    PAYLOAD_EXIT = "payload-exit"
    PAYLOAD_LABEL = "payload-label"
    POD_GONE = "pod-gone"
    """That nothing of a phase pod is left, in CRI and in the API."""
    POD_AGAIN = "pod-again"
    """Time until a refused phase pod is made anew."""
    REVISION = "revision"
    """That the ControllerRevision which says how is there again."""
    USERS_GONE = "users-gone"
    """That no running pod uses its handlers."""
    RESUME = "resume"
    """That a person lifts the stop of everything."""
    CONTROLLER = "controller"
    """That a controller takes the next step. Never of `decide`: of those who only look."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Nothing to do until something changes, or until `until`."""

    reason: str
    awaits: Signal
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
    clear_labels: tuple[str, ...] = ()
    """Keys of done labels that are taken off in the same patch."""
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
    """List, uncached, the running pods that use a handler of the revision that is installed, or on its way in, and ask
    again."""


Decision = Wait | Move | MakePod | EndPod | AskUse
