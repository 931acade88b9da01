"""A whole cluster: the API server, its nodes, controllers and agents, wired for one run.

`async with running(Options(...)) as cluster` is the cluster being up; everything ends with the block.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry

from metrics.kube import RequestMetrics
from reconciler.api import names
from reconciler.api.clock import Clock, rfc3339
from reconciler.controller import Controller
from reconciler.kube.client import Client
from reconciler.kube.errors import ApiError, NotFound, TransportError
from reconciler.kube.light import LightTransport
from reconciler.kube.resources import NODES, PODS
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH, Transport
from reconciler.sim import http, kinds
from reconciler.sim.clock import Skewed
from reconciler.sim.life import Life
from reconciler.sim.link import Link, Taps
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.node import Runnable, SimNode
from reconciler.sim.server import ApiServer, Knobs
from reconciler.sim.wire import Wire

log = logging.getLogger(__name__)

POD_GC_PERIOD = 20.0
"""Seconds between two of its rounds: `gcCheckPeriod`."""
POD_GC = 40.0
"""Seconds from the end of a Node until its pods are deleted: `quarantineTime` of `pkg/controller/podgc`."""
RESTART_DELAY = 1.0
"""Seconds until kubelet starts a killed controller again."""

MONITOR_PERIOD = 5.0
MONITOR_GRACE = 40.0
"""Seconds: `--node-monitor-period` and `--node-monitor-grace-period` of kube-controller-manager (50 from 1.32 on)."""

T = TypeVar("T")
AgentFactory = Callable[[SimNode, Client], Runnable]


@dataclass(frozen=True)
class Foreign:
    """Something of somebody else's that must survive everything that we do."""

    kind: str
    """`text` (of a file), `label`, `annotation`, `taint`, `cordon`."""
    node: str
    where: str
    """Path below the node's root, or key; "" for a cordon."""
    what: str
    """The exact text, or value; `EFFECT` of a taint."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a cluster is made of. `seed` decides everything that is left to chance."""

    root: Path
    """Directory of the nodes' disks."""
    clock: Clock
    agent: AgentFactory | None
    nodes: int = 3
    seed: int = 1
    controllers: int = 1
    over: Literal["memory", "wire", "http"] = "memory"
    """How clients reach the API server: by calls, by HTTP's bytes in memory, or over the loopback."""
    namespace: str = names.NAMESPACE
    knobs: Knobs = field(default_factory=Knobs)
    controller: type[Controller] = Controller
    """Another one is for tests that plant a fault in it."""
    registry: Callable[[str], CollectorRegistry] = lambda identity: REGISTRY
    """Where the replica of a name counts; all of them in one place unless they are given their own."""


class Replica:
    """One replica of the controller, started again whenever it ends."""

    def __init__(self, identity: str, cluster: Cluster) -> None:
        self.identity = identity
        self.controller: Controller | None = None
        self.kills = 0
        self._cluster = cluster
        self.link = cluster.connect(f"controller:{identity}")
        self._task: asyncio.Task[None] | None = None
        self.life = Life()
        self.clock = Skewed(cluster.options.clock)
        self._number = 0
        """Of its pod: one that was killed comes back as another one, unless it is the same container again."""
        self._same_pod = False
        self._wanted = asyncio.Event()
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._number += not self._same_pod
            self._same_pod = False
            self.life = Life()
            self.link.cut = False
            options = self._cluster.options
            registry = options.registry(self.identity)
            self.controller = options.controller(
                Client(self.link, rng=self._cluster.rng, metrics=RequestMetrics(registry)),
                clock=self.clock,
                rng=self._cluster.rng,
                namespace=options.namespace,
                identity=f"{self.identity}-{self._number}",
                registry=registry,
            )
            self._task = self.life.start(self.controller.run())
            try:
                await asyncio.wait({self._task})
            finally:
                self._task.cancel()
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                log.error("controller died", extra={"identity": self.identity}, exc_info=error)
            await asyncio.sleep(RESTART_DELAY)

    def stall_at(self, chosen: Callable[[str, str, bytes | None], bool]) -> None:
        """From the first request that `chosen(method, path, body)` picks its packets are held up, this one's too.

        It loses the Lease, and what it has sent arrives late.
        """
        self.link.stall_at = chosen

    @property
    def stalled(self) -> bool:
        return self.link.stalled

    def kill_watches(self) -> None:
        """Its watches die without a word; what it asks is answered all the while."""
        self.link.kill_watches()

    def resume(self) -> None:
        """What was held up arrives now."""
        self.link.resume()

    def kill(self, *, same_pod: bool = False) -> None:
        """SIGKILL: it cannot give its Lease back. With `same_pod` it comes back under the same identity."""
        if self._task is not None:
            self.kills += 1
            self._same_pod = same_pod
            self.life.ended.set()
            self.link.cut = True
            self._task.cancel()

    def hold(self) -> None:
        """Killed, and not started again: no node has room for it, or its image is gone."""
        self._wanted.clear()
        self.kill()

    def release(self) -> None:
        """What kept it away is over."""
        self._wanted.set()

    @property
    def leads(self) -> bool:
        return self.controller is not None and self.controller.is_leader


class Cluster:
    """A running cluster. `admin` is a client with every right."""

    def __init__(self, options: Options, server: ApiServer, url: str, tasks: asyncio.TaskGroup) -> None:
        self.options = options
        self.server = server
        self.url = url
        self.wires: dict[str, Wire] = {}
        """By user; the last one that was connected."""
        self.rng = random.Random(options.seed)
        self.taps = Taps()
        self.joined: list[Callable[[SimNode], None]] = []
        """Told of each new machine before it is switched on."""
        self.admin = Client(self.connect("admin"), rng=self.rng)
        self._manager = Client(self.connect("kube-controller-manager"), rng=self.rng)
        self.nodes: dict[str, SimNode] = {}
        self.replicas: list[Replica] = []
        self.images: set[str] = set()
        """What can be pulled beside the images of `sim.payload`."""
        self._tasks = tasks
        self._own: set[asyncio.Task[Any]] = set()
        self.foreign: list[Foreign] = []
        """What stands at the moment, in the order in which it came."""
        self._machines: dict[str, asyncio.Task[None]] = {}
        self._ended = False

    def connect(self, user: str) -> Link:
        """A link to the API server for one client."""
        inner: Transport = MemoryTransport(self.server, user=user)
        if self.options.over == "wire":
            inner = self.wires[user] = Wire(self.server, user=user)
        elif self.url:
            inner = LightTransport(self.url, token=user)
        return Link(inner, user=user, taps=self.taps)

    async def boot(self) -> None:
        """Everything is switched on; returns when all machines are up."""
        for number in range(1, self.options.nodes + 1):
            self.add_node(f"node-{number}")
        for number in range(1, self.options.controllers + 1):
            replica = Replica(f"controller-{number}", self)
            self.replicas.append(replica)
            self.spawn(replica.run())
        self.spawn(self._lifecycle())
        for node in self.nodes.values():
            await node.up()

    def add_node(self, name: str, **labels: str) -> SimNode:
        """A new machine joins."""
        node = SimNode(
            name,
            self.options.root / name,
            connect=self.connect,
            clock=Skewed(self.options.clock),
            rng=random.Random(f"{self.options.seed}/{name}"),
            namespace=self.options.namespace,
            agent=self.options.agent,
            labels=labels,
            images=self.images,
        )
        self.nodes[name] = node
        for told in self.joined:
            told(node)
        self.power_on(name)
        return node

    def is_on(self, name: str) -> bool:
        """Whether the machine has power."""
        machine = self._machines.get(name)
        return machine is not None and not machine.done() and not machine.cancelling()

    def power_on(self, name: str) -> None:
        self._machines[name] = self.spawn(self.nodes[name].run())

    async def power_off(self, name: str) -> None:
        """The machine loses power: nothing of it goes on, its disk stays. Nobody tells the API server."""
        node = self.nodes[name]
        node.agent_link.cut = node.kubelet_link.cut = True
        machine = self._machines[name]
        machine.cancel()
        await asyncio.wait({machine})
        node.power_off()

    async def remove_node(self, name: str) -> None:
        """The machine leaves for good; its Node stays until somebody deletes it."""
        await self.power_off(name)
        del self.nodes[name], self._machines[name]

    async def delete_node(self, name: str) -> None:
        """The Node object goes; its pods follow by pod garbage collection, unless a Node of that name is back."""
        self.spawn(self._collect_pods(name))
        await self.admin.delete(NODES, name)

    async def _collect_pods(self, node: str) -> None:
        await asyncio.sleep(POD_GC)
        while self.server.store.get(kinds.NODES, ("", node)) is None:
            try:
                await self._delete_pods(node)
                return
            except (ApiError, TransportError) as error:
                log.debug("pods of a lost node are collected again", extra={"node": node, "error": str(error)})
                await asyncio.sleep(POD_GC_PERIOD)

    async def _delete_pods(self, node: str) -> None:
        pods, _ = await self._manager.list(PODS, field_selector=f"spec.nodeName={node}")
        for pod in pods:
            meta = pod.metadata
            await self._manager.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0)

    async def _lifecycle(self) -> None:
        """The node lifecycle controller: a Node that has not been heard of for long is not known to be Ready."""
        while True:
            await asyncio.sleep(MONITOR_PERIOD)
            now = asyncio.get_running_loop().time()
            for node in [*self.nodes.values()]:
                if now - node.heard > MONITOR_GRACE and not node.doubted:
                    node.doubted = True
                    await self._doubt(node)

    async def _doubt(self, node: SimNode) -> None:
        message = "Kubelet stopped posting node status."
        moment = rfc3339(self.options.clock.now())
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
        body = {"status": {"conditions": [{**condition, "lastTransitionTime": moment}]}}
        try:
            await self._manager.patch(NODES, node.name, body, subresource="status", content_type=STRATEGIC_MERGE_PATCH)
        except NotFound:
            return
        except (ApiError, TransportError):
            node.doubted = False  # it looks again

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that ends with the cluster."""
        task = self._tasks.create_task(work)
        self._own.add(task)
        if self._ended:
            task.cancel()
        task.add_done_callback(self._own.discard)
        return task

    async def shut_down(self) -> None:
        """End every task; the machines first, so that nobody mourns a server that is gone."""
        self._ended = True
        for task in [*self._own]:
            task.cancel()
        for node in self.nodes.values():
            node.power_off()
        for wire in self.wires.values():
            await wire.close()

    @property
    def leader(self) -> Replica | None:
        return next((replica for replica in self.replicas if replica.leads), None)


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Cluster]:
    """The cluster is up inside the block."""
    server = ApiServer(clock=options.clock, rng=random.Random(f"{options.seed}/server"), knobs=options.knobs)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(http.serve(server)) if options.over == "http" else ""
        failed: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            cluster = Cluster(options, server, url, tasks)
            try:
                await cluster.boot()
                yield cluster
            except Exception as error:  # raised again below, as itself and not inside a group
                failed = error
            finally:
                await cluster.shut_down()
        if failed is not None:
            raise failed
