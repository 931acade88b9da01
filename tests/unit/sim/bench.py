"""A small cluster on which one fault is caused at a time."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reconciler.kube.resources import NODES, PODS
from reconciler.sim import clock, kinds
from reconciler.sim.cluster import AgentFactory, Cluster, Options, running
from reconciler.sim.faults import FAULTS, World
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.node import SimNode


class Bench:
    """`said` is the timeline; `cause` is one occurrence to its end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.said: list[str] = []
        self.world = World(cluster, say=self.said.append)

    @property
    def node(self) -> SimNode:
        return self.cluster.nodes["node-1"]

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def cause(self, name: str, seed: int = 1) -> None:
        await FAULTS[name].cause(self.world, random.Random(seed))

    def begin(self, name: str, seed: int = 1) -> asyncio.Task[None]:
        return self.cluster.spawn(self.cause(name, seed))

    async def until(self, holds: Callable[[], bool], limit: float = 120.0) -> None:
        end = self.now + limit
        while not holds():
            assert self.now < end, f"not within {limit} s; {self.said}"
            await asyncio.sleep(0.05)

    def there(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        record = self.cluster.server.store.get(kind, (namespace, name))
        return None if record is None else record.object

    def of_node(self, name: str = "node-1") -> Object:
        return self.there(kinds.NODES, name) or {"metadata": {}}

    def uid(self, name: str = "node-1") -> str:
        return str(self.of_node(name)["metadata"].get("uid", ""))

    def ready(self, name: str = "node-1") -> str:
        conditions = self.of_node(name)["status"]["conditions"]
        return str(next(c for c in conditions if c["type"] == "Ready")["status"])

    async def pod(self, name: str, *arguments: str, **labels: str) -> None:
        """On node-1, in the namespace of the product."""
        container = {"name": "main", "image": "sim/payload:1", "args": list(arguments)}
        spec = {"nodeName": "node-1", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        body = {"metadata": {"name": name, "labels": labels}, "spec": {**spec, "containers": [container]}}
        await self.cluster.admin.create(PODS, body, self.cluster.options.namespace)

    async def label(self, **labels: str | None) -> None:
        await self.cluster.admin.patch(NODES, "node-1", {"metadata": {"labels": labels}})


async def seed_that_says(bench: Bench, name: str, wanted: str) -> int:
    """The first seed whose occurrence begins with such a line; none of them lasts."""
    for seed in range(200):
        fault = bench.begin(name, seed)
        await asyncio.sleep(0)
        fault.cancel()
        await asyncio.wait({fault})
        if re.search(wanted, bench.said[-1]):
            return seed
    raise AssertionError(f"no seed of {name} says {wanted}")


Main = Callable[[Bench], Coroutine[Any, Any, None]]


def drive(root: Path, main: Main, *, nodes: int = 1, agent: AgentFactory | None = None, controllers: int = 0) -> None:
    async def run() -> None:
        options = Options(root=root, clock=clock.VirtualClock(), agent=agent, nodes=nodes, controllers=controllers)
        async with running(options) as cluster:
            for node in cluster.nodes.values():
                await node.daemon.served()
            await main(Bench(cluster))

    clock.run(run())
