"""A whole cluster in virtual time, with the real controller and the real agents."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.api import names
from reconciler.api.node import NodeState, decode_state
from reconciler.controller import Controller
from reconciler.kube.resources import NODERUNTIMES, NODES
from reconciler.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from reconciler.sim import clock, faults, judge, kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import AgentFactory, Cluster, Options, running
from reconciler.sim.invariants import Observer
from reconciler.sim.kinds import Object
from reconciler.sim.loops import RUNTIME, Loops, manifest

POLL = 0.05


class Scenario:
    """A running cluster, short words for what is done to it, and the judge's eye on it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.before = judge.look(cluster)
        self.observer = Observer(cluster)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def create(self, body: dict[str, Any] | None = None) -> None:
        await self.cluster.admin.create(NODERUNTIMES, body or manifest())

    async def slip_in(self, body: dict[str, Any]) -> None:
        """As `create`, under a CRD of an older release that refuses nothing."""
        knobs = self.cluster.server.knobs
        knobs.schema = False
        await self.create(body)

    async def delete(self, propagation: str = "Background") -> None:
        await self.cluster.admin.delete(NODERUNTIMES, RUNTIME, propagation=propagation)

    async def patch(self, spec: dict[str, Any]) -> None:
        await self.cluster.admin.patch(NODERUNTIMES, RUNTIME, {"spec": spec})

    async def mark(self, node: str, **labels: str | None) -> None:
        """Set or take off labels of a node, as a person does."""
        body = {"metadata": {"labels": labels}}
        await self.cluster.admin.patch(NODES, node, body, content_type=MERGE_PATCH)

    async def until(self, holds: Callable[[], bool], limit: float = 120.0) -> float:
        """Seconds that it took."""
        begun = self.now
        while not holds():
            assert self.now - begun < limit, f"not within {limit} s; {self.told()}"
            await asyncio.sleep(POLL)
        return self.now - begun

    async def ready(self, limit: float = 120.0) -> float:
        return await self.until(lambda: set(self.stages().values()) == {"ready"}, limit)

    async def gone(self, limit: float = 120.0) -> float:
        """Until the object is gone; then nothing may be left."""
        took = await self.until(lambda: self.runtime() is None, limit)
        await self.until(lambda: not self.left(), 40.0)
        return took

    def told(self) -> str:
        """Where everything is, for the message of a failed test."""
        return f"stages: {self.stages()}; left: {self.left()}; status: {self.status()}"

    def left(self) -> list[str]:
        return judge.left_behind(self.cluster, self.before)

    def runtime(self) -> Object | None:
        record = self.cluster.server.store.get(kinds.NODERUNTIMES, ("", RUNTIME))
        return None if record is None else record.object

    def status(self) -> Object:
        found: Object = (self.runtime() or {}).get("status") or {}
        return found

    def condition(self, kind: str, runtime: str = RUNTIME) -> Object:
        record = self.cluster.server.store.get(kinds.NODERUNTIMES, ("", runtime))
        status = {} if record is None else record.object.get("status") or {}
        found: Object = next((c for c in status.get("conditions", ()) if c["type"] == kind), {})
        return found

    async def says(self, kind: str, status: str, reason: str, runtime: str = RUNTIME, limit: float = 120.0) -> str:
        """Wait for exactly this condition; its message."""

        def holds() -> bool:
            found = self.condition(kind, runtime)
            return (found.get("status"), found.get("reason")) == (status, reason)

        await self.until(holds, limit)
        return str(self.condition(kind, runtime).get("message", ""))

    def events(self, reason: str, runtime: str = RUNTIME) -> list[tuple[str, str]]:
        """Type and note of the Events with `reason` that regard the NodeRuntime."""
        return [
            (record.object["type"], record.object["note"])
            for _, record in self.cluster.server.store.all(kinds.EVENTS)
            if record.object["reason"] == reason and record.object["regarding"]["name"] == runtime
        ]

    def touches(self) -> list[str]:
        """Every patch of a Node and every pod made by the product so far, those of agents' reports left out."""
        return [
            f"{a.method} {a.target.kind.plural} {a.target.name}"
            for a in self.cluster.server.audit
            if a.user.startswith("controller")
            and a.status < 400
            and not a.rehearsed
            and (a.method, a.target.kind.plural) in (("PATCH", "nodes"), ("POST", "pods"))
        ]

    def node(self, name: str) -> Object:
        record = self.cluster.server.store.get(kinds.NODES, ("", name))
        return {"metadata": {}} if record is None else record.object

    def state(self, node: str) -> NodeState | None:
        text = (self.node(node)["metadata"].get("annotations") or {}).get(names.state_annotation(RUNTIME))
        return None if text is None else decode_state(text)

    def stages(self) -> dict[str, str]:
        states = {name: self.state(name) for name in self.cluster.nodes}
        return {name: "absent" if state is None else str(state.stage) for name, state in states.items()}

    def stage_somewhere(self, stage: str) -> bool:
        return stage in self.stages().values()

    async def not_ready(self, node: str) -> None:
        """What the node lifecycle controller says of a node that has fallen silent."""
        await asyncio.sleep(40)
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        body = {"status": {"conditions": [condition]}}
        await self.cluster.admin.patch(NODES, node, body, subresource="status", content_type=STRATEGIC_MERGE_PATCH)

    def pods_made(self) -> int:
        """Phase pods, each of which is one run of a payload."""
        return sum(1 for line in self.touches() if line.startswith("POST pods"))

    def restarts(self, initiator: str) -> int:
        starts = (start for node in self.cluster.nodes.values() for start in node.daemon.starts)
        return sum(1 for start in starts if start.initiator == initiator)

    def restarts_of(self, node: str, initiator: str = "agent") -> int:
        """Starts of containerd on one node."""
        return sum(1 for start in self.cluster.nodes[node].daemon.starts if start.initiator == initiator)

    def loops(self, body: dict[str, Any] | None = None) -> Loops:
        return Loops(self.cluster, body or manifest())

    def inject(self, *chosen: str, seed: int, pace: float = 8.0) -> faults.Injector:
        injector = faults.Injector(self.cluster, chosen, random.Random(seed), pace=pace)
        self.cluster.spawn(injector.run())
        return injector


Main = Callable[[Scenario], Coroutine[Any, Any, None]]
Drive = Callable[..., None]


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    """`drive(main, nodes=2, seed=1, controllers=1)` runs `main(scenario)` on a cluster of its own.

    `agent` and `controller` are others where a test plants a fault in one.
    """

    def run(
        main: Main,
        *,
        nodes: int = 2,
        seed: int = 1,
        controllers: int = 1,
        agent: AgentFactory = real_agent,
        controller: type[Controller] = Controller,
    ) -> None:
        async def body() -> None:
            options = Options(
                root=tmp_path,
                clock=clock.VirtualClock(),
                agent=agent,
                controller=controller,
                nodes=nodes,
                seed=seed,
                controllers=controllers,
            )
            async with running(options) as cluster:
                for node in cluster.nodes.values():
                    await node.daemon.served()
                scenario = Scenario(cluster)
                await main(scenario)
                assert [str(breach) for breach in scenario.observer.broken] == []

        clock.run(body())

    yield run
