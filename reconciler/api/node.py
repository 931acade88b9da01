"""What is written on a Node: `NodeState` by the controller, `Report` by the agent.

`NodeState` is the only store of progress; a new leader goes on from it. `Report` echoes the work
that it answers (`uid`, `stage`, `revision`, `attempt`), so that two attempts with the same outcome differ.
"""

from __future__ import annotations

import enum
from datetime import datetime

import msgspec

MESSAGE_MAX = 256
"""Longest message kept on a Node, in characters: annotations of all runtimes share 256 KiB."""


class Stage(enum.StrEnum):
    """Stages of one runtime on one node (design section 4)."""

    ABSENT = "absent"
    PRE_INSTALL = "pre-install"
    INSTALL = "install"
    CONFIGURE = "configure"
    VERIFY = "verify"
    READY = "ready"
    UNCONFIGURE = "unconfigure"
    UNINSTALL = "uninstall"
    POST_UNINSTALL = "post-uninstall"
    FAILED = "failed"


REST = frozenset({Stage.ABSENT, Stage.READY, Stage.FAILED})
"""Nothing is at work in these."""
POD_STAGES = frozenset({Stage.PRE_INSTALL, Stage.INSTALL, Stage.UNINSTALL, Stage.POST_UNINSTALL})
"""Done by a phase pod."""
AGENT_STAGES = frozenset({Stage.CONFIGURE, Stage.UNCONFIGURE})
"""Done by the node's agent."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why something went wrong. `reason` is CamelCase and from a closed set, `message` at most 256 characters."""

    reason: str
    message: str = ""


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """JSON of annotation `state.runtime-reconciler.io/<runtime>`."""

    uid: str
    """UID of the NodeRuntime."""
    stage: Stage
    installed: str = ""
    """Revision that was last proven ready here."""
    target: str = ""
    """Revision that the node is on its way to, or being uninstalled by."""
    failed: str = ""
    """Revision that was given up on here; not tried again until `retry` or a new revision."""
    attempt: int = 1
    pod: str = ""
    """UID of the pod of the step before: the actor of this stage begins only when nothing of it runs."""
    since: datetime
    """When this stage, or this attempt of it, began (wall clock)."""
    deadline: datetime | None = None
    """When the node becomes stuck, if nothing stood still meanwhile."""
    repairs: tuple[datetime, ...] = ()
    """When the node went back to work by itself, at most the last hour's."""
    draining: bool = False
    """Going to be uninstalled, but running pods still use a handler: no new ones are let in."""
    machine: str = ""
    """`status.nodeInfo.machineID` at the install; another one means a fresh root under the same name."""
    forced: bool = False
    """A person lets the agent take handlers away that running pods use."""
    hurried: bool = False
    """A person asked for this try: it is made without a pause."""
    signals: tuple[str, ...] = ()
    """Keys of the done labels that payloads may have set here since the node was last at rest, the latest last: their
    revisions may be gone when it is again."""
    error: Problem | None = None


class WorkResult(enum.StrEnum):
    """What the agent says of the work that it was given."""

    DONE = "Done"
    FAILED = "Failed"
    """Tried, proven not to work, undone. Final for this attempt."""
    WAITING = "Waiting"
    """Not begun or not ended, for the reason given; the agent goes on by itself when the cause goes."""


class WorkReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent's answer to one piece of work; the first four fields echo the `NodeState` it answers."""

    uid: str
    stage: Stage
    revision: str
    attempt: int
    result: WorkResult
    reason: str = ""
    message: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """JSON of annotation `agent.runtime-reconciler.io/report`. Changed only when the truth changes."""

    boot: str = ""
    """Kernel boot id."""
    containerd: str = ""
    """Version that the serving containerd answered, e.g. `1.6.20`."""
    handlers: tuple[str, ...] = ()
    """Runtime handlers that CRI serves, sorted."""
    work: dict[str, WorkReport] = msgspec.field(default_factory=dict)
    """By name of the runtime."""
    ended: tuple[str, ...] = ()
    """UIDs of our phase pods on this node of which CRI runs nothing any more, sorted."""
    journal: dict[str, str] = msgspec.field(default_factory=dict)
    """What the host's journal holds: name of the runtime → UID of the NodeRuntime that asked for it."""


def cut(message: str) -> str:
    """`message` on one line and at most MESSAGE_MAX characters long."""
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE_MAX else line[: MESSAGE_MAX - 1] + "…"


def encode(value: NodeState | Report) -> str:
    """Deterministic JSON text of an annotation."""
    return msgspec.json.encode(value, order="sorted").decode()


def decode_state(text: str) -> NodeState:
    """Raises msgspec.ValidationError or msgspec.DecodeError on text that is not a `NodeState`."""
    return msgspec.json.decode(text, type=NodeState)


def decode_report(text: str) -> Report:
    """Raises msgspec.ValidationError or msgspec.DecodeError on text that is not a `Report`."""
    return msgspec.json.decode(text, type=Report)
