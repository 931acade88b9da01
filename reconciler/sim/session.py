"""One run of `reconciler simulate`: a cluster, its faults, the judge, the loops, and what is shown of them."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY
from rich.console import Console

from metrics.controller import ControllerCollector, ControllerFigures
from metrics.exporter import Exporter
from reconciler.api.clock import Clock, SystemClock
from reconciler.api.overview import Overview
from reconciler.controller import statuspage
from reconciler.controller.feed import Feed, Replica
from reconciler.sim import clock, view
from reconciler.sim.cluster import AgentFactory, Cluster, Options, running
from reconciler.sim.faults import Injector
from reconciler.sim.invariants import Observer
from reconciler.sim.loops import Loops, manifest

LOOPBACK = "127.0.0.1"

LEAST_LIMIT = 300.0
NODE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Session:
    """What was asked for on the command line."""

    nodes: int
    loops: int
    faults: tuple[str, ...]
    seed: int
    pace: float
    bake: int
    max_unavailable: int | str
    controllers: int
    virtual_time: bool
    """In memory, without the view, without the status page and /metrics."""
    port: int

    @property
    def limit(self) -> float:
        """Seconds for one install or uninstall: node after node, each with its bake and some trouble."""
        return max(LEAST_LIMIT, self.nodes * (self.bake + NODE_SECONDS))


@dataclass(frozen=True)
class Ended:
    """What became of it."""

    loops: Loops
    injector: Injector
    observer: Observer

    @property
    def clean(self) -> bool:
        return self.loops.summary.clean and not self.observer.broken


def run(session: Session, agent: AgentFactory, console: Console) -> Ended:
    """Run it to its end. Raises CannotListen."""
    if session.virtual_time:
        return clock.run(_run(session, agent, console, clock.VirtualClock()))
    return asyncio.run(_run(session, agent, console, SystemClock()))


async def _run(session: Session, agent: AgentFactory, console: Console, time: Clock) -> Ended:
    with tempfile.TemporaryDirectory(prefix="reconciler-sim-") as root:
        options = Options(
            root=Path(root),
            clock=time,
            agent=agent,
            nodes=session.nodes,
            seed=session.seed,
            controllers=session.controllers,
            over="memory" if session.virtual_time else "http",
        )
        async with running(options) as cluster:
            if session.virtual_time:
                return await _drive(session, cluster, console)
            async with served(session.port, cluster) as address:
                console.print(f"status page: {address}/status\nmetrics:     {address}/metrics", soft_wrap=True)
                return await _drive(session, cluster, console)


@asynccontextmanager
async def served(port: int, cluster: Cluster) -> AsyncIterator[str]:
    """The status page, and /metrics of everything in this process; gives the address."""

    def figures() -> ControllerFigures | None:
        """The leader's: two replicas in one process cannot both have gauges."""
        leader = cluster.leader
        return None if leader is None or leader.controller is None else leader.controller.figures()

    collector = ControllerCollector(figures)
    REGISTRY.register(collector)
    feed = Feed(lambda: seen(cluster), clock=cluster.options.clock, rng=random.Random())
    try:
        async with Exporter(port, ready=lambda: True, host=LOOPBACK, routes=statuspage.routes(feed)) as exporter:
            yield f"http://{LOOPBACK}:{exporter.port}"
    finally:
        REGISTRY.unregister(collector)


async def seen(cluster: Cluster) -> tuple[Replica, Overview]:
    """What the leader has to show; while there is none, what the first standby that lives has."""
    replicas = [cluster.leader, *cluster.replicas]
    living = next((r.controller for r in replicas if r is not None and r.controller is not None), None)
    if living is None:
        return Replica(identity="", leads=False, synced=False), Overview(time=cluster.options.clock.now())
    return await statuspage.seen_by(living)


async def _drive(session: Session, cluster: Cluster, console: Console) -> Ended:
    body = manifest(bake=session.bake, unavailable=session.max_unavailable)
    loops = Loops(cluster, body, limit=session.limit)
    observer = Observer(cluster)
    injector = Injector(cluster, session.faults, random.Random(f"{session.seed}/faults"), pace=session.pace)
    beside: list[asyncio.Task[Any]] = [
        cluster.spawn(loops.watch_pods()),
        cluster.spawn(injector.run()),
    ]
    if not session.virtual_time:
        beside.append(cluster.spawn(view.show(cluster, loops, session.loops, console)))
    try:
        await loops.run(session.loops)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
    return Ended(loops, injector, observer)
