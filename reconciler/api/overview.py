"""The read model: where every node is and what it waits for. What `status -o json` and the status page speak.

JSON is camelCase; times are RFC 3339 and absolute, so that a row changes only when the truth does.
"""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

from reconciler.api.meta import Condition
from reconciler.api.node import Problem, WorkReport


class Verdict(enum.StrEnum):
    """How a node is doing, in one word; `TROUBLED_FIRST` is the order in which a person wants to see them."""

    OK = "ok"
    WORKING = "working"
    WAITING = "waiting"
    STUCK = "stuck"
    FAILED = "failed"
    ASIDE = "aside"
    ABSENT = "absent"


TROUBLED_FIRST = (
    Verdict.STUCK,
    Verdict.FAILED,
    Verdict.WAITING,
    Verdict.WORKING,
    Verdict.OK,
    Verdict.ASIDE,
    Verdict.ABSENT,
)


class Barrier(enum.StrEnum):
    """Whether the node's containerd serves CRI, as far as it can be believed."""

    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class _Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Every field is always there."""


class Stopped(_Row, frozen=True):
    """Somebody has stopped all rollouts."""

    reason: str = ""
    by: str = ""
    since: datetime | None = None


class NodeRow(_Row, frozen=True):
    """One runtime on one node."""

    runtime: str
    node: str
    stage: str
    """A `Stage`, or `unknown` where the state annotation cannot be read."""
    verdict: Verdict
    reason: str
    """CamelCase: why it waits, as the controller's decision names it."""
    awaits: str
    """A `Signal`: what it waits for, in a word of a closed set."""
    since: datetime | None = None
    """When this stage, or this attempt of it, began."""
    deadline: datetime | None = None
    """When it becomes stuck, or is tried again, if nothing stands still meanwhile."""
    attempt: int = 1
    waits_for: str = ""
    last_seen: str = ""
    next: str = ""
    advice: str = ""
    """What to do; empty when nothing is to be done."""
    barrier: Barrier = Barrier.UNKNOWN
    error: Problem | None = None
    """What is wrong now, or what ended the attempt before."""
    revision: str = ""
    """The revision that is there, or that it is on its way to."""


class RuntimeRow(_Row, frozen=True):
    """One NodeRuntime. Nodes that are set aside are not part of `total`."""

    name: str
    total: int = 0
    ready: int = 0
    updating: int = 0
    failed: int = 0
    stuck: int = 0
    set_aside: int = 0
    stages: dict[str, int] = {}
    paused: bool = False
    halted: str = ""
    """Why nothing new begins, as a sentence; empty while it goes on."""
    problem: Problem | None = None
    deleting: bool = False
    revision: str = ""


class Overview(_Row, frozen=True):
    """Everything, at one moment."""

    time: datetime
    stopped: Stopped | None = None
    runtimes: tuple[RuntimeRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()


class PhasePod(_Row, frozen=True):
    """A phase pod that is on a node."""

    name: str
    runtime: str
    stage: str
    attempt: int
    state: str
    """pending, running, succeeded, failed or never-ran."""
    created: datetime
    reason: str = ""
    message: str = ""
    """What kubelet says, or the payload's termination message: the end of its log."""
    deleting: bool = False
    ended: bool = False
    """The agent has seen in CRI that nothing of it runs."""


class AgentWord(_Row, frozen=True):
    """The agent of a node, and what it last reported."""

    pod: str = ""
    """`namespace/name`, empty where there is none."""
    ready: bool = False
    why: str = ""
    """Why there is no ready one."""
    containerd: str = ""
    handlers: tuple[str, ...] = ()
    work: dict[str, WorkReport] = {}
    journal: dict[str, str] = {}


class Explanation(_Row, frozen=True):
    """Everything that is known of one node."""

    time: datetime
    node: str
    stopped: Stopped | None = None
    ready: Condition | None = None
    serving: Condition | None = None
    contested: Condition | None = None
    """`ConfigContested`: the guard keeps its hands off containerd's configuration."""
    agent: AgentWord = AgentWord()
    runtimes: tuple[NodeRow, ...] = ()
    pods: tuple[PhasePod, ...] = ()
    unselected: dict[str, str] = {}
    """NodeRuntimes that have nothing to do with the node, and why."""
