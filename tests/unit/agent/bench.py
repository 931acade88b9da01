"""Small stand-ins for what an agent reaches: CRI, systemd, the engine, the API server. All in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from msgspec import convert, structs

from reconciler.agent.deps import Deps
from reconciler.agent.probe import Probe
from reconciler.agent.work import Worker
from reconciler.api import names
from reconciler.api.meta import (
    Condition,
    ConfigMap,
    ContainerState,
    ContainerStatus,
    Node,
    ObjectMeta,
    Pod,
    PodStatus,
    StateTerminated,
)
from reconciler.api.node import NodeState, encode
from reconciler.barrier.barrier import RetryBarrier
from reconciler.cri import api as cri_api
from reconciler.hostconfig import Findings, Outcome, Verdict
from reconciler.kube.errors import NotFound
from reconciler.kube.events import Recorder
from reconciler.sim.clock import EPOCH, VirtualClock
from reconciler.systemd.api import UnitState
from tests.unit.systemd.units import RUNNING

NODE = "node-1"
UNIT = RUNNING
OUTAGE = cri_api.CriError(cri_api.Code.UNAVAILABLE, "connection refused", connection=True)


@dataclass
class Cri:
    """`error` is what every call meets, when set."""

    error: cri_api.CriError | None = None
    release: str = "1.6.20"
    handlers: tuple[str, ...] = ("runc",)
    pods: list[cri_api.Sandbox] = field(default_factory=list)
    processes: list[cri_api.Container] = field(default_factory=list)
    stopped: list[Any] = field(default_factory=list)
    after_stop: Callable[[], Awaitable[None]] | None = None

    def _meet(self) -> None:
        if self.error is not None:
            raise self.error

    async def version(self, *, timeout: float) -> cri_api.Version:
        self._meet()
        return cri_api.Version("containerd", self.release)

    async def status(self, *, timeout: float) -> cri_api.Status:
        self._meet()
        return cri_api.Status(True, True, handlers=self.handlers, default_runtime="runc")

    async def sandboxes(self, *, timeout: float) -> list[cri_api.Sandbox]:
        self._meet()
        return [*self.pods]

    async def containers(self, *, timeout: float) -> list[cri_api.Container]:
        self._meet()
        return [*self.processes]

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        self._meet()
        self.stopped.append((container_id, grace))
        if self.after_stop is not None:
            await self.after_stop()
        self.processes = [
            replace(p, state=cri_api.ContainerState.EXITED) if p.id == container_id else p for p in self.processes
        ]

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        self._meet()
        self.stopped.append(sandbox_id)
        self.pods = [replace(p, ready=False) if p.id == sandbox_id else p for p in self.pods]

    def close(self) -> None:
        """There is no channel."""

    def run(self, uid: str, *, handler: str = "", alive: bool = True) -> None:
        """A pod with one container."""
        state = cri_api.ContainerState.RUNNING if alive else cri_api.ContainerState.EXITED
        self.pods.append(cri_api.Sandbox(f"s-{uid}", uid, "shop", uid, True, handler))
        self.processes.append(cri_api.Container(f"c-{uid}", "app", f"s-{uid}", uid, state))


@dataclass
class Systemd:
    state: UnitState = UNIT
    calls: list[str] = field(default_factory=list)
    system: str = "running"
    asked: int = 0

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        self.asked += 1
        return self.state

    async def restart(self, name: str, *, timeout: float) -> str:
        raise AssertionError("only the engine restarts")

    async def start(self, name: str, *, timeout: float) -> str:
        self.calls.append("start")
        return "done"

    async def reset_failed(self, name: str, *, timeout: float = 5) -> None:
        self.calls.append("reset-failed")

    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        raise AssertionError("only the engine arms")

    async def disarm(self, name: str) -> None:
        raise AssertionError("only the engine disarms")

    async def system_state(self, *, timeout: float = 5) -> str:
        return self.system

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        async def stop() -> None:
            return None

        return stop

    async def close(self) -> None:
        """There is no connection."""


@dataclass
class Rescue:
    """The guard's hands; `files` stands for the signature of what lies on disk."""

    files: int = 0
    proven: bool = True
    outcome: Outcome = field(default_factory=lambda: Outcome(Verdict.UNCHANGED))
    calls: list[str] = field(default_factory=list)
    during: str = ""
    would_start: bool = True

    async def signature(self) -> tuple[tuple[str, int, int, int], ...]:
        return (("/etc/containerd/config.toml", self.files, 0, 0),)

    async def remember(self) -> bool:
        self.calls.append("remember")
        return self.proven

    async def forget(self) -> None:
        self.calls.append("forget")

    async def put_back(self, *, failed: bool, during: str) -> Outcome:
        self.calls.append("put back, failed" if failed else "put back")
        self.during = during
        return self.outcome

    async def loads(self) -> bool:
        return self.would_start


@dataclass
class Host:
    """The engine; `outcome` is what a change comes to."""

    outcome: Outcome = field(default_factory=lambda: Outcome(Verdict.CHANGED, restarted=True))
    held: dict[str, str] = field(default_factory=dict)
    handlers: frozenset[str] = frozenset()
    busy: bool = False
    changes: list[tuple[str, str]] = field(default_factory=list)
    findings: Findings = field(default_factory=lambda: Findings(loads=True, serves=True))
    during: Callable[[], Awaitable[None]] | None = None
    rescue: Rescue = field(default_factory=Rescue)

    async def apply(self, name: str, uid: str, data: Any, *, fence: Any = None) -> Outcome:
        return await self._change("apply", name, fence)

    async def remove(self, name: str, *, fence: Any = None) -> Outcome:
        return await self._change("remove", name, fence)

    async def _change(self, operation: str, name: str, fence: Any) -> Outcome:
        await fence()
        self.changes.append((operation, name))
        if self.during is not None:
            await self.during()
        return self.outcome

    async def recover(self) -> list[Outcome]:
        return []

    def journal(self) -> dict[str, str]:
        return dict(self.held)

    def written(self, name: str) -> frozenset[str]:
        return self.handlers

    def check(self) -> Findings:
        return self.findings


@dataclass
class Api:
    """The API server: one Node, revisions, and the patches it got."""

    node: Node = field(default_factory=lambda: Node(metadata=ObjectMeta(name=NODE, uid="n", resource_version="1")))
    revisions: dict[str, Any] = field(default_factory=dict)
    patches: list[Any] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    stopped: ConfigMap | Exception | None = None
    """What asking for the stop comes to; None: it is not there."""
    before_answer: Callable[[], Awaitable[None]] | None = None
    """Awaited while the stop is asked for."""
    asked: list[float] = field(default_factory=list)
    """Loop times at which the stop was asked for."""

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if resource.plural == "nodes":
            return self.node
        if resource.plural == "configmaps":
            return await self._stop(name)
        if name not in self.revisions:
            raise NotFound(404, "NotFound", name)
        return self.revisions[name]

    async def _stop(self, name: str) -> ConfigMap:
        self.asked.append(asyncio.get_running_loop().time())
        if self.before_answer is not None:
            await self.before_answer()
        if isinstance(self.stopped, Exception):
            raise self.stopped
        if self.stopped is None:
            raise NotFound(404, "NotFound", name)
        return self.stopped

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str = "", **_: Any) -> Node:
        self.patches.append(patch)
        annotations = {**self.node.metadata.annotations, **patch.get("metadata", {}).get("annotations", {})}
        meta = ObjectMeta(
            name=NODE,
            uid="n",
            annotations=annotations,
            resource_version=str(int(self.node.metadata.resource_version) + 1),
        )
        conditions = patch.get("status", {}).get("conditions")
        status = self.node.status
        if conditions:
            written = {c.type: c for c in (*status.conditions, *convert(conditions, tuple[Condition, ...]))}
            status = structs.replace(status, conditions=tuple(written.values()))
        self.node = Node(metadata=meta, status=status)
        return self.node

    def ask(self, runtime: str, state: NodeState) -> Node:
        """The controller writes a state."""
        annotations = {**self.node.metadata.annotations, names.state_annotation(runtime): encode(state)}
        meta = ObjectMeta(
            name=NODE,
            uid="n",
            annotations=annotations,
            resource_version=str(int(self.node.metadata.resource_version) + 1),
        )
        self.node = Node(metadata=meta, status=self.node.status)
        return self.node


class Metrics:
    """Counts what happened."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def closed(self, reason: str) -> None:
        self.told.append(("closed", reason))

    def opened(self, seconds: float) -> None:
        self.told.append(("opened", seconds))

    def waited(self, seconds: float) -> None:
        self.told.append(("waited", seconds))

    def retried(self, reason: str) -> None:
        self.told.append(("retried", reason))

    def transaction(self, operation: str, outcome: str, reason: str, *, undone: bool) -> None:
        self.told.append(("transaction", operation, outcome, reason, "undone" if undone else "kept"))

    def killed(self, result: str) -> None:
        self.told.append(("killed", result))

    def restarted(self, initiator: str) -> None:
        self.told.append(("restarted", initiator))

    def given_up(self, result: str) -> None:
        self.told.append(("given up", result))


class Told(Recorder):
    """Keeps what was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, regarding: object, kind: str, reason: str, note: str, action: str) -> None:
        self.events.append((reason, note))


@dataclass
class Bench:
    """An agent's parts, made when the loop runs."""

    cri: Cri = field(default_factory=Cri)
    systemd: Systemd = field(default_factory=Systemd)
    host: Host = field(default_factory=Host)
    api: Api = field(default_factory=Api)
    metrics: Metrics = field(default_factory=Metrics)
    recorder: Told = field(default_factory=Told)
    replaced: int = 0
    woken: int = 0
    contested: str = ""

    def __post_init__(self) -> None:
        self.deps = Deps(
            node=NODE,
            client=self.api,  # type: ignore[arg-type]
            cri=self.cri,
            systemd=self.systemd,
            host=self.host,  # type: ignore[arg-type]
            clock=VirtualClock(),
            rng=random.Random(1),
            metrics=self.metrics,
            boot="boot-1",
            own_pod="own",
            replaced=self.replace,
        )
        self.barrier = RetryBarrier(rng=self.deps.rng, metrics=self.metrics)
        self.probe = Probe(self.deps, self.barrier, self.wake)

    def worker(
        self, over: Callable[[str], bool] = lambda uid: False, to_come: Callable[[str], bool] = lambda uid: False
    ) -> Worker:
        return Worker(
            self.deps, self.barrier, self.probe, self.wake, over=over, to_come=to_come, recorder=self.recorder
        )

    def wake(self) -> None:
        self.woken += 1

    def replace(self) -> None:
        self.replaced += 1


def pod(
    uid: str,
    *,
    phase: str = "",
    deleted: float | None = None,
    grace: int = 5,
    exit_code: int | None = None,
    annotations: dict[str, str] | None = None,
) -> Pod:
    """`phase`: a phase pod of that stage. `deleted`: virtual second at which its deletion was asked for."""
    labels = {names.COMPONENT_LABEL: names.COMPONENT_PHASE, names.PHASE_LABEL: phase} if phase else {}
    stamp = None if deleted is None else EPOCH + timedelta(seconds=deleted + grace)
    statuses: tuple[ContainerStatus, ...] = ()
    if exit_code is not None:
        statuses = (ContainerStatus(state=ContainerState(terminated=StateTerminated(exit_code=exit_code))),)
    return Pod(
        metadata=ObjectMeta(
            name=uid,
            namespace="shop",
            uid=uid,
            labels=labels,
            annotations=annotations or {},
            deletion_timestamp=stamp,
            deletion_grace_period_seconds=None if deleted is None else grace,
        ),
        status=PodStatus(container_statuses=statuses),
    )
