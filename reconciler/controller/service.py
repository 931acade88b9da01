"""The controller: informers feed two queues, workers reconcile while we lead."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry

from metrics.controller import ControllerFigures, ControllerMetrics
from metrics.kube import QueueMetrics, WatchMetrics
from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.api.meta import ConfigMap, DaemonSet, Node, Pod
from reconciler.api.node import Problem
from reconciler.api.noderuntime import NodeRuntime
from reconciler.api.overview import Overview
from reconciler.controller import figures, installers, problems
from reconciler.controller.node import NodeReconciler
from reconciler.controller.outlooks import survey
from reconciler.controller.overview import overview
from reconciler.controller.runtime import RuntimeReconciler
from reconciler.controller.stopping import StopSwitch
from reconciler.controller.telemetry import Telemetry
from reconciler.controller.times import SteadyClock
from reconciler.controller.world import NODE_INDEX, World
from reconciler.kube.client import Client
from reconciler.kube.errors import ApiError, TransportError
from reconciler.kube.events import Recorder
from reconciler.kube.informer import Informer
from reconciler.kube.lease import Elector
from reconciler.kube.queue import Priority, WorkQueue
from reconciler.kube.resources import (
    CONFIGMAPS,
    CONTROLLERREVISIONS,
    DAEMONSETS,
    NODERUNTIMES,
    NODES,
    PODS,
    RUNTIMECLASSES,
)
from reconciler.kube.workers import run_workers

log = logging.getLogger(__name__)

NODE_WORKERS = 16
"""Nodes reconciled at once: each holds one request to the API server at a time."""
RUNTIME_WORKERS = 2
SYNC_LOOK = 5.0
"""Seconds without a first list before a missing right is told of."""
LOOKS_AT_ONCE = 50
"""Nodes that a standby looks at before it lets others have the event loop: some 10 ms."""
RESYNC = 300.0
"""Seconds between looks at every key, the net under lost wakes; spread over half of it."""


class Controller:
    """One replica. `run` returns when cancelled; it releases the Lease on the way out."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: random.Random,
        namespace: str = names.NAMESPACE,
        identity: str,
        own_node: str = "",
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        """`registry`: where it counts."""
        self.identity = identity
        self._client = client
        self._clock = SteadyClock(clock)
        self._rng = rng
        pods = f"{names.COMPONENT_LABEL} in ({names.COMPONENT_AGENT},{names.COMPONENT_PHASE})"
        watched, queued = WatchMetrics(registry), QueueMetrics(registry)
        self._outcome = queued.outcome
        self._nodes = Informer(client, NODES, clock=clock, rng=rng, metrics=watched)
        self._pods = Informer(
            client,
            PODS,
            namespace=namespace,
            label_selector=pods,
            clock=clock,
            rng=rng,
            indexers={NODE_INDEX: lambda pod: [pod.spec.node_name]},
            metrics=watched,
        )
        self._runtimes = Informer(client, NODERUNTIMES, clock=clock, rng=rng, metrics=watched)
        self._revisions = Informer(
            client,
            CONTROLLERREVISIONS,
            namespace=namespace,
            label_selector=names.RUNTIME_LABEL,
            clock=clock,
            rng=rng,
            metrics=watched,
        )
        self._classes = Informer(client, RUNTIMECLASSES, clock=clock, rng=rng, metrics=watched)
        self._stops = Informer(
            client,
            CONFIGMAPS,
            namespace=namespace,
            field_selector=f"metadata.name={names.STOP_NAME}",
            clock=clock,
            rng=rng,
            metrics=watched,
        )
        self._daemonsets = Informer(client, DAEMONSETS, clock=clock, rng=rng, metrics=watched)
        self.world = World(
            namespace=namespace,
            nodes=self._nodes.store,
            pods=self._pods.store,
            runtimes=self._runtimes.store,
            revisions=self._revisions.store,
            classes=self._classes.store,
            daemonsets=self._daemonsets.store,
        )
        self._onlooker: World | None = None
        """The same stores with a memory of its own, while we do not lead."""
        self._recorder = Recorder(client, names.FIELD_MANAGER, clock)
        telemetry = Telemetry(self._recorder, ControllerMetrics(registry), self.world.runtime)
        self._node_queue: WorkQueue[str] = WorkQueue("node", rng=rng, metrics=queued)
        self._runtime_queue: WorkQueue[str] = WorkQueue("noderuntime", rng=rng, metrics=queued)
        self._elector = Elector(
            client, namespace=namespace, name=names.LEASE_NAME, identity=identity, clock=clock, rng=rng
        )
        # a process that was stopped for a while goes on where it was, before anything could be cancelled
        fenced = client.fenced(lambda: self._elector.is_leader)
        self._switch = StopSwitch(client, self._stops.store, self.world, self._clock)
        self._node = NodeReconciler(
            self.world,
            fenced,
            # a write that is tried again for seconds must not begin anything late
            starter=client.fenced(lambda: self._elector.is_leader and not self.world.stopping.words),
            confirm=self._switch.confirm,
            clock=self._clock,
            telemetry=telemetry,
            changed=self._runtime_changed,
            own_node=own_node,
        )
        self._telemetry = telemetry
        self._runtime = RuntimeReconciler(
            self.world,
            fenced,
            confirm=self._switch.confirm,
            clock=clock,
            rng=rng,
            telemetry=telemetry,
            wake=self._wake_node,
        )
        self._nodes.add_handler(self._on_node)
        self._pods.add_handler(self._on_pod)
        self._runtimes.add_handler(self._on_runtime)
        self._revisions.add_handler(self._on_revision)
        self._classes.add_handler(self._on_owned)
        for watcher in self._informers:
            watcher.on_refused(self._on_refused)
        self._stops.add_handler(self._on_stop)
        self._daemonsets.add_handler(self._on_daemonset)
        self._daemonsets.on_refused(self._on_daemonsets_refused)

    @property
    def is_leader(self) -> bool:
        return self._elector.is_leader

    @property
    def synced(self) -> bool:
        """Whether every store holds a first list."""
        return all(i.synced.is_set() for i in self._informers)

    def figures(self) -> ControllerFigures:
        """What a scrape shows; of the nodes only while it leads, for else nobody here looks at them."""
        leads, now = self.is_leader, self._clock.now()
        return ControllerFigures(
            lease=names.LEASE_NAME,
            leads=leads,
            silence={i.plural: i.silence() for i in (*self._informers, self._daemonsets)},
            at_work={queue.name: queue.at_work() for queue in (self._node_queue, self._runtime_queue)},
            runtimes=figures.runtimes(self.world, now) if leads else {},
            troubled=figures.troubled(self.world, now) if leads else (),
        )

    async def overview(self) -> Overview:
        """Where every node is. The leader has it noted; a standby looks at every node anew, which takes a while."""
        if self.is_leader:
            self._onlooker = None
            return overview(self.world, self._clock.now())
        onlooker = self._onlooker = self._onlooker or self.world.onlooker()
        onlooker.stopping = self.world.stopping
        for count, _ in enumerate(survey(onlooker, self._clock.now())):
            if count % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return overview(onlooker, self._clock.now())

    async def run(self) -> None:
        """Keep the stores warm, lead when elected. Ends by cancellation only."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            tasks.create_task(self._daemonsets.run())  # needed for a warning only: nothing waits for it
            tasks.create_task(self._look_for_installers())
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._elector.run(self._lead))

    @property
    def _informers(self) -> tuple[Informer[Any], ...]:
        return (self._nodes, self._pods, self._runtimes, self._revisions, self._classes, self._stops)

    async def _lead(self) -> None:
        await self._sync()
        self._clock.set()
        self.world.sightings.clear()
        self.world.leading_since = self._clock.now()
        self.world.outlooks.clear()
        self.world.rows.clear()
        self.world.seen.clear()
        self.world.giving_back.clear()
        log.info("leading", extra={"nodes": len(self.world.nodes.list())})
        self._add_all(Priority.LOW)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_workers(self._node_queue, self._node.reconcile, NODE_WORKERS, outcomes=self._outcome))
            tasks.create_task(
                run_workers(self._runtime_queue, self._runtime.reconcile, RUNTIME_WORKERS, outcomes=self._outcome)
            )
            tasks.create_task(self._resync())

    async def _sync(self) -> None:
        """Every store must hold a first list; a right that is missing for it is told of meanwhile."""
        while not self.synced:
            try:
                async with asyncio.timeout(SYNC_LOOK):
                    for informer in self._informers:
                        await informer.synced.wait()
            except TimeoutError:
                await self._tell_blind()

    async def _tell_blind(self) -> None:
        problem = problems.blind(self.world)
        if problem is None:
            return
        for runtime in self.world.runtimes.list():
            try:
                await self._runtime.tell(runtime.metadata.name, problem)
            except (ApiError, TransportError) as error:
                fields = {"runtime": runtime.metadata.name, "error": str(error)}
                log.warning("cannot tell what is forbidden", extra=fields)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC * (0.75 + self._rng.random() / 2))
            self._add_all(Priority.LOW)

    def _add_all(self, priority: Priority) -> None:
        for node in self.world.nodes.list():
            self._node_queue.add(node.metadata.name, priority=priority)
        for runtime in self.world.runtimes.list():
            self._runtime_queue.add(runtime.metadata.name, priority=priority)

    # --- events ---

    def _on_node(self, kind: str, old: Node | None, new: Node | None, initial: bool) -> None:
        node = new or old
        if node is None:
            return
        if kind == "deleted":
            self.world.seen.discard(node.metadata.name)
            self._every_runtime()  # it may have been the last one that nobody had looked at
        for runtime in sorted(_given_up(old, new)):
            self._runtime_changed(runtime)
        self._node_queue.add(node.metadata.name, priority=Priority.LOW if initial else Priority.HIGH)

    def _on_pod(self, kind: str, old: Pod | None, new: Pod | None, initial: bool) -> None:
        pod = new or old
        if pod is None:
            return
        if kind == "deleted":
            self.world.forget_pod(pod.metadata.uid)
            runtime = pod.metadata.labels.get(names.RUNTIME_LABEL)
            if runtime is not None:
                self._runtime_changed(runtime)
        if pod.spec.node_name:
            self._node_queue.add(pod.spec.node_name, priority=Priority.LOW if initial else Priority.HIGH)

    def _on_runtime(self, kind: str, old: NodeRuntime | None, new: NodeRuntime | None, initial: bool) -> None:
        runtime = new or old
        if runtime is None:
            return
        priority = Priority.LOW if initial else Priority.HIGH
        self._runtime_queue.add(runtime.metadata.name, priority=priority)
        if old is not None and new is not None and _same_will(old, new):
            return
        for node in self.world.nodes.list():
            self._node_queue.add(node.metadata.name, priority=priority)
        for other in self.world.runtimes.list():  # one that lost a contest may have won it now
            self._runtime_queue.add(other.metadata.name, priority=priority)

    def _on_revision(self, kind: str, old: Any, new: Any, initial: bool) -> None:
        self._on_owned(kind, old, new, initial)
        if kind == "added" and not initial:  # nodes may have waited for it
            for node in self.world.nodes.list():
                self._node_queue.add(node.metadata.name, priority=Priority.LOW)

    def _on_owned(self, kind: str, old: Any, new: Any, initial: bool) -> None:
        owned = new or old
        self._runtime_changed(owned.metadata.labels.get(names.RUNTIME_LABEL, ""))
        for runtime in self.world.problems:  # a RuntimeClass of somebody else's may have been in the way
            self._runtime_changed(runtime)

    def _on_stop(self, kind: str, old: ConfigMap | None, new: ConfigMap | None, initial: bool) -> None:
        self._switch.note(initial=initial)
        self._add_all(Priority.HIGH)

    async def _look_for_installers(self) -> None:
        await self._daemonsets.synced.wait()
        self._installers_known(None)

    def _on_daemonset(self, kind: str, old: DaemonSet | None, new: DaemonSet | None, initial: bool) -> None:
        if not initial and any(d is not None and installers.config_mount(d) for d in (old, new)):
            self._every_runtime()

    def _on_daemonsets_refused(self, plural: str, words: str) -> None:
        if words:
            self._telemetry.forbidden(plural)
        self._installers_known(problems.forbidden(words) if words else None)

    def _installers_known(self, problem: Problem | None) -> None:
        self.world.installers = problem
        self._every_runtime()

    def _every_runtime(self) -> None:
        for runtime in self.world.runtimes.list():
            self._runtime_changed(runtime.metadata.name)

    def _on_refused(self, plural: str, words: str) -> None:
        if words:
            self._telemetry.forbidden(plural)
            self.world.blind[plural] = words
        else:
            self.world.blind.pop(plural, None)
        self._switch.note(initial=False)
        self._every_runtime()

    def _runtime_changed(self, runtime: str) -> None:
        if runtime:
            self._runtime_queue.add(runtime, priority=Priority.HIGH)

    def _wake_node(self, node: str) -> None:
        if node:
            self._node_queue.add(node, priority=Priority.HIGH)


def _given_up(old: Node | None, new: Node | None) -> set[str]:
    """Runtimes whose deletion a person has just told not to wait for this node, or to wait for it again."""
    before, after = (set() if node is None else _skips(node) for node in (old, new))
    return before ^ after


def _skips(node: Node) -> set[str]:
    prefix = names.SKIP_ANNOTATION_PREFIX
    return {key.removeprefix(prefix) for key in node.metadata.annotations if key.startswith(prefix)}


def _same_will(old: NodeRuntime, new: NodeRuntime) -> bool:
    """Only the status changed, and no slot in it."""
    return (
        old.metadata.generation == new.metadata.generation
        and old.metadata.annotations == new.metadata.annotations
        and (old.metadata.deletion_timestamp is None) == (new.metadata.deletion_timestamp is None)
        and old.status.in_work == new.status.in_work
    )
