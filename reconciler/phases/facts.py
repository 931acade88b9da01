"""What `decide` may know: everything is an argument, gathered by the shell."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.api.node import NodeState, Stage, WorkReport


@dataclass(frozen=True)
class Goal:
    """Where a node should be: at `revision` of the NodeRuntime `uid`, or (revision empty) without it."""

    uid: str
    revision: str = ""


@dataclass(frozen=True)
class PhasePlan:
    """The part of a phase that decisions depend on; times in seconds."""

    timeout: float = 600.0
    grace: int = 30
    done_label: tuple[str, str] | None = None
    """Node label by which the payload says that it is done; None: by its exit."""


@dataclass(frozen=True)
class Plan:
    """What one revision consists of."""

    phases: Mapping[Stage, PhasePlan] = field(default_factory=dict)
    handlers: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    """Those of the handlers that the agent writes; the payload writes the others."""
    configures: bool = False
    """Whether anything of it is written into containerd's configuration by the agent."""


class Outcome(enum.Enum):
    """What became of a phase pod, judged by its container and not by the pod's phase."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NEVER_RAN = "never-ran"
    """OutOfcpu, NodeAffinity, Evicted …: refused or removed before its container ran."""


@dataclass(frozen=True)
class Stop:
    """A time in which everything was stopped; `end` is None while it lasts."""

    begin: datetime
    end: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """One phase pod of this runtime on this node."""

    uid: str
    stage: Stage
    revision: str
    attempt: int
    outcome: Outcome
    created: datetime
    deleting: bool = False
    ended: bool = False
    """The agent has seen in CRI that nothing of it runs."""
    reason: str = ""
    message: str = ""
    name: str = ""
    """For those who are told of it."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One runtime on one node."""

    goal: Goal
    state: NodeState | None
    plans: Mapping[str, Plan]
    """Of the revisions that are there."""
    owned: bool = True
    """The NodeRuntime of the state, or of a node without one, is there."""
    pods: tuple[PodFacts, ...] = ()
    answer: WorkReport | None = None
    served: frozenset[str] = frozenset()
    serving: bool = False
    """ContainerdServing is True, and the agent and the node can be believed."""
    serving_since: datetime | None = None
    serving_reason: str = ""
    contested: str = ""
    """What somebody breaks again and again in containerd's configuration; empty: nothing. No payload is started."""
    node_ready: bool = True
    node_ready_since: datetime | None = None
    agent_ready: bool = True
    agent_lost: datetime | None = None
    """Since when no agent has been ready on this node, as far as is known; None while one is."""
    agent_reason: str = "no agent pod on this node; see the agent DaemonSet"
    """Why there is none."""
    set_aside: str = ""
    """Why this node cannot take part now; empty when it can."""
    machine: str = ""
    dirty: str = ""
    """UID of a NodeRuntime of this name whose configuration the host's journal still holds."""
    slot: bool = False
    free: bool = True
    """No other runtime is at work on this node."""
    labels_true: bool = True
    """The stage and present labels say what the state says."""
    done_label: bool = False
    """The done label of the present stage is on the node."""
    tainted: bool = False
    """A startup taint of the NodeRuntime is still on the node."""
    in_use: Mapping[str, tuple[str, ...]] | None = None
    """By handler of the revision that is installed, or on its way in: running pods that use it. None: not asked yet."""
    retry: bool = False
    """A person asks for another try."""
    force: bool = False
    """Take a handler away also where pods use it."""
    reinstall: bool = False
    bake: float = 0.0
    """Seconds that a node must have stayed healthy before it counts."""
    leading_since: datetime | None = None
    stopped: str = ""
    """Who has stopped everything, or why nobody can tell whether that is so; empty when nothing is stopped."""
    stops: tuple[Stop, ...] = ()
    """When everything was stopped, as far as is known; oldest first, one after the other."""
