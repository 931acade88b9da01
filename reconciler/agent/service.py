"""The agent of one node: probe, worker, reporter, kill retrier and reviver on one event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol, TypeVar

from metrics.agent import AgentFigures
from metrics.kube import WatchMetrics
from reconciler.agent.deps import Deps
from reconciler.agent.guard import Guard
from reconciler.agent.kills import Kills
from reconciler.agent.probe import Probe
from reconciler.agent.reporting import Reporter
from reconciler.agent.revive import Reviver
from reconciler.agent.strays import Strays
from reconciler.agent.work import Worker
from reconciler.api.meta import Node, Pod
from reconciler.barrier.barrier import RetryBarrier, State
from reconciler.hostconfig import HostConfigError
from reconciler.kube.events import Recorder
from reconciler.kube.informer import Informer
from reconciler.kube.resources import NODES, PODS, Resource
from reconciler.kube.store import HasMeta

log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMeta)


class Runs(Protocol):
    async def run(self) -> None: ...


class Agent:
    """`run` goes on until it is cancelled; `stop` begins a clean end."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self.barrier = RetryBarrier(rng=deps.rng, metrics=deps.metrics)
        self._nodes: Informer[Node] = _informer(deps, NODES, f"metadata.name={deps.node}")
        self._pods: Informer[Pod] = _informer(deps, PODS, f"spec.nodeName={deps.node}")
        self._probe = Probe(deps, self.barrier, self._host_changed)
        self._recorder = Recorder(deps.client, "agent", deps.clock, instance=deps.node)
        self.kills = Kills(deps, self.barrier, self._pods.store, self._told)
        self._strays = Strays(deps, self.barrier, self._known)
        self._worker = Worker(
            deps,
            self.barrier,
            self._probe,
            self._told,
            over=self._over,
            to_come=self.kills.to_come,
            recorder=self._recorder,
        )
        self._reviver = Reviver(deps, self._probe, self._recorder)
        self._guard = Guard(
            deps,
            self.barrier,
            self._probe,
            self._pods.store,
            self._recorder,
            changing=lambda: self._worker.busy,
            changed=self._told,
        )
        self._reporter = Reporter(
            deps,
            self.barrier,
            self._probe,
            self._worker,
            ended=lambda: self.kills.ended,
            contested=lambda: self._guard.contested,
        )
        self._nodes.add_handler(self._on_node)
        self._pods.add_handler(self._on_pod)
        self.barrier.listen(self._on_barrier)

    @property
    def ready(self) -> bool:
        """Whether what the Node says of this machine can be believed."""
        return self._reporter.written

    def figures(self) -> AgentFigures:
        """What a scrape shows."""
        return AgentFigures(
            serving=self.barrier.state is State.OPEN,
            down=self.barrier.down(),
            cri_missing=self.barrier.state is State.FAILED,
            silence={informer.plural: informer.silence() for informer in (self._nodes, self._pods)},
        )

    async def run(self) -> None:
        """First what a killed predecessor left in the journal is finished or rolled back."""
        try:
            for outcome in await self._deps.host.recover():
                self._deps.count("recover", outcome, "agent")
                log.warning("recovered", extra={"outcome": outcome.verdict.value, "told": outcome.message})
        except HostConfigError as error:
            log.error("journal not recovered", extra={"error": str(error)})
        owner = asyncio.current_task()
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(_for_ever(part, owner))

    @property
    def _parts(self) -> tuple[Runs, ...]:
        work = (
            self._probe,
            self._worker,
            self.kills,
            self._strays,
            self._reporter,
            self._reviver,
            self._guard,
            self._recorder,
        )
        return (self._nodes, self._pods, *work)

    def stop(self) -> None:
        """Begin nothing new."""
        self._worker.stopping = True

    def _over(self, uid: str) -> bool:
        """Nothing of this pod can run: CRI has shown it, or the API knows no such pod on this node."""
        known = self._pods.synced.is_set() and not any(p.metadata.uid == uid for p in self._pods.store.list())
        return not uid or uid in self.kills.ended or known

    def _known(self) -> set[str] | None:
        """UIDs of this node's pods; None before they were listed."""
        return {pod.metadata.uid for pod in self._pods.store.list()} if self._pods.synced.is_set() else None

    def _on_node(self, kind: str, old: Any, new: Any, initial: bool) -> None:
        if new is not None:
            self._worker.see(new)
            self._guard.see(new)
            self._reporter.see(new)

    def _on_pod(self, kind: str, old: Any, new: Any, initial: bool) -> None:
        self.kills.nudge()
        if new is None:
            self._strays.nudge()
        self._worker.nudge()
        self._guard.nudge()

    def _on_barrier(self, state: State) -> None:
        self._reporter.wake()
        self._worker.nudge()

    def _host_changed(self) -> None:
        self._reporter.wake()
        self._reviver.nudge()

    def _told(self) -> None:
        self._reporter.wake()


async def _for_ever(part: Runs, owner: asyncio.Task[Any] | None) -> None:
    """A part that ends without its owner being cancelled ends the agent: a task group would not say a word."""
    try:
        await part.run()
    except asyncio.CancelledError:
        if owner is not None and owner.cancelling():
            raise
    raise RuntimeError(f"{type(part).__name__} ended by itself")


def _informer(deps: Deps, resource: Resource[T], field_selector: str) -> Informer[T]:
    return Informer(
        deps.client,
        resource,
        clock=deps.clock,
        rng=deps.rng,
        field_selector=field_selector,
        metrics=WatchMetrics(deps.registry),
    )
