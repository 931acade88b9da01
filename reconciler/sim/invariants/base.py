"""What an invariant is, and the steps of the world that it may be told of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from reconciler.api import names
from reconciler.api.node import REST, NodeState, decode_state
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.containerd import Start
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.node import SimNode
from reconciler.sim.requests import Request
from reconciler.sim.runtime import Process

K = TypeVar("K")
V = TypeVar("V")

CONTROLLER = "controller:"
AGENT = "agent:"
"""How the users of our processes begin."""
OURS = (CONTROLLER, AGENT)


@dataclass(frozen=True)
class Breach:
    """What should not have been."""

    time: float
    """Virtual seconds."""
    invariant: str
    """Its name, as `describe` has it."""
    what: str
    """What, where and by whom, in one sentence."""

    def __str__(self) -> str:
        return f"{self.time:.3f} s: {self.invariant}: {self.what}"


@dataclass(frozen=True)
class Write:
    """One write of the API store. `old` is None for a creation, `new` for a removal."""

    kind: Kind
    namespace: str
    name: str
    old: Object | None
    new: Object | None
    request: Request | None
    """What asked for it; None: the server itself, or a test that wrote past it."""

    @property
    def by(self) -> str:
        return "" if self.request is None else self.request.user

    @property
    def of_controller(self) -> bool:
        return self.by.startswith(CONTROLLER)

    @property
    def ours(self) -> bool:
        return self.by.startswith(OURS)

    @property
    def any(self) -> Object:
        """The object after the write, or as it went."""
        found = self.new if self.new is not None else self.old
        return found if found is not None else {"metadata": {}}

    def body(self) -> Any:
        """What was asked for; an empty object when nothing was."""
        return {} if self.request is None or not self.request.body else self.request.json()


@dataclass(frozen=True)
class Sent:
    """A request leaves a client of ours; it may never arrive."""

    by: str
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None


class Surroundings:
    """The world as it is now, and when its parts were troubled last. Shared by the invariants; holds no verdict."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.now = asyncio.get_running_loop().time()
        self.troubled: dict[str, float] = {}
        """User → when a request of its was refused by a fault, or got no answer, last."""
        self.led_since: float | None = None
        """Since when one controller has led without a break; None: nobody leads."""
        self.agent_since: dict[str, float] = {}
        """Node → since when its agent's pod is Ready."""
        self.edited: dict[str, float] = {}
        """NodeRuntime → when its spec or its deletion was last asked for."""

    def objects(self, kind: Kind) -> Iterator[Object]:
        return (record.object for _, record in self.cluster.server.store.all(kind))

    def node(self, name: str) -> Object | None:
        record = self.cluster.server.store.get(kinds.NODES, ("", name))
        return None if record is None else record.object

    def runtime(self, name: str) -> Object | None:
        record = self.cluster.server.store.get(kinds.NODERUNTIMES, ("", name))
        return None if record is None else record.object

    def machine(self, name: str) -> SimNode | None:
        return self.cluster.nodes.get(name)

    def untroubled(self, user: str, seconds: float) -> bool:
        """Whether all that `user` has asked the API server in the last `seconds` was answered."""
        return self.now - self.troubled.get(user, -1e9) >= seconds

    def agent_lives(self, node: str, seconds: float) -> bool:
        """Whether the agent of `node` has lived, and reached the API server, for that long."""
        machine, since = self.machine(node), self.agent_since.get(node)
        if machine is None or since is None or machine.life.ended.is_set() or not machine.agent_link.passes:
            return False
        return self.now - since >= seconds and self.untroubled(AGENT + node, seconds)

    def led(self, seconds: float) -> bool:
        return self.led_since is not None and self.now - self.led_since >= seconds


class Invariant:
    """One rule. Its docstring says what must hold and what excuses a breach; each method is told of one kind of step
    and gives a sentence for each breach that it sees."""

    name: str

    def __init__(self, around: Surroundings) -> None:
        self.around = around

    def wrote(self, step: Write) -> Iterable[str]:
        return ()

    def sent(self, step: Sent) -> Iterable[str]:
        return ()

    def heard(self, user: str, method: str, path: str, data: bytes) -> Iterable[str]:
        return ()

    def answered(self, request: Request, status: int) -> Iterable[str]:
        return ()

    def started(self, node: SimNode, start: Start) -> Iterable[str]:
        """Of containerd."""
        return ()

    def changed(self, node: SimNode) -> Iterable[str]:
        """Containerd's unit or CRI."""
        return ()

    def lived(self, node: SimNode, process: Process) -> Iterable[str]:
        """A container has started or ended."""
        return ()

    def traced(self, node: SimNode, step: str) -> Iterable[str]:
        """An agent is about to do `step` to the disk."""
        return ()

    def ticked(self) -> Iterable[str]:
        """Once in TICK seconds, when something happens."""
        return ()


@lru_cache(maxsize=4096)
def _decoded(text: str) -> NodeState | None:
    try:
        return decode_state(text)
    except msgspec.MsgspecError:
        return None


def states(node: Object | None) -> dict[str, NodeState]:
    """By runtime: what the annotations of a Node say; one that cannot be read is left out."""
    found = {}
    for key, text in marks(node).items():
        if key.startswith(names.STATE_ANNOTATION_PREFIX) and (state := _decoded(text)) is not None:
            found[key.removeprefix(names.STATE_ANNOTATION_PREFIX)] = state
    return found


def unreadable(node: Object | None) -> Iterator[str]:
    """The runtimes that `states` leaves out."""
    for key, text in marks(node).items():
        if key.startswith(names.STATE_ANNOTATION_PREFIX) and _decoded(text) is None:
            yield key.removeprefix(names.STATE_ANNOTATION_PREFIX)


def moves(step: Write) -> Iterator[tuple[str, NodeState | None, NodeState | None]]:
    """Runtime, state before and state after, of those that a write of a Node has changed."""
    old, new = states(step.old), states(step.new)
    for runtime in sorted(old.keys() | new.keys()):
        if old.get(runtime) != new.get(runtime):
            yield runtime, old.get(runtime), new.get(runtime)


def at_work(state: NodeState | None) -> bool:
    return state is not None and state.stage not in REST


def labels(obj: Object | None) -> dict[str, str]:
    found: dict[str, str] = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return found


def marks(obj: Object | None) -> dict[str, str]:
    found: dict[str, str] = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    return found


def condition(obj: Object | None, kind: str) -> str:
    """The status of a condition; empty when it is not there."""
    found = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((str(c.get("status", "")) for c in found if c.get("type") == kind), "")


def is_phase_pod(pod: Object | None) -> bool:
    return labels(pod).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE


@dataclass(frozen=True)
class Step:
    """Which work a phase pod is for."""

    node: str
    runtime: str
    uid: str
    stage: str
    revision: str
    attempt: int


def step_of(pod: Object) -> Step:
    told, where = marks(pod), labels(pod)
    return Step(
        node=pod["spec"].get("nodeName", ""),
        runtime=where.get(names.RUNTIME_LABEL, ""),
        uid=told.get(names.UID_ANNOTATION, ""),
        stage=where.get(names.PHASE_LABEL, ""),
        revision=told.get(names.REVISION_ANNOTATION, ""),
        attempt=int(told.get(names.ATTEMPT_ANNOTATION) or 0),
    )


def phase_processes(node: SimNode) -> Iterator[tuple[str, Process]]:
    """Name of the pod and process, of the payloads that run on a node now."""
    for process in node.runtime.processes.values():
        sandbox = node.runtime.sandboxes.get(process.sandbox_id)
        if sandbox is None or sandbox.labels.get(names.COMPONENT_LABEL) != names.COMPONENT_PHASE:
            continue
        if process.state.name == "RUNNING":
            yield sandbox.name, process


@dataclass
class Bounded(Generic[K, V]):
    """A dict that forgets its oldest entries."""

    size: int
    entries: dict[K, V] = field(default_factory=dict)

    def put(self, key: K, value: V) -> None:
        self.entries.pop(key, None)
        self.entries[key] = value
        if len(self.entries) > self.size:
            del self.entries[next(iter(self.entries))]

    def get(self, key: K) -> V | None:
        return self.entries.get(key)
