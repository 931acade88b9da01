"""The embedded cluster of the tour: real controllers and agents in real time, each with its own /metrics over TCP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from metrics.agent import AgentCollector, AgentFigures
from metrics.controller import ControllerCollector, ControllerFigures
from metrics.exporter import Exporter
from metrics.kube import RequestMetrics
from reconciler.agent import Agent
from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.controller import statuspage
from reconciler.controller.feed import Feed
from reconciler.kube.client import Client
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim import kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import Cluster, Options, Replica, running
from reconciler.sim.loops import BINARY, RUNTIME, manifest, phase
from reconciler.sim.node import SimNode
from reconciler.sim.session import LOOPBACK, seen

NODES = 20
BAD = "node-12"
"""Its registry does not have the payload's image."""
IMAGE = "registry.example/kata-payload:1"
LOOP = "node-2"
"""Its containerd goes away twice in one kill."""
GRACE = 4
"""Seconds that a payload that is deaf to SIGTERM is left: a second outage must fall into the retried kill."""
POLL = 0.05
DEADLINE = 20
"""Seconds of the install phase: the default of 600 would be most of the tour."""


@dataclass(frozen=True)
class Target:
    """What Prometheus scrapes."""

    job: str
    address: str
    labels: dict[str, str]


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    targets: tuple[Target, ...]
    page: str
    """URL of the status page."""

    async def start_rollout(self) -> None:
        await self.cluster.admin.create(NODERUNTIMES, _manifest())

    async def mend(self) -> None:
        """What a person does at the node: its registry has the image from now on."""
        self.cluster.nodes[BAD].images.add(IMAGE)

    async def two_outages_in_one_kill(self) -> None:
        """What a preStop hook that restarts containerd does: kubelet loses the kill, and the agent's retry waits."""
        node = self.cluster.nodes[LOOP]
        while not node.kubelet.failed_kills:
            if self._dying() and node.daemon.serving:
                await node.outage(1.0)
            await asyncio.sleep(POLL)
        await node.daemon.served()
        await asyncio.sleep(GRACE / 8)  # the agent has asked for the stop by now
        await node.outage(1.0)

    def _dying(self) -> bool:
        pods = (record.object for _, record in self.cluster.server.store.all(kinds.PODS))
        return any(p["spec"].get("nodeName") == LOOP and "deletionTimestamp" in p["metadata"] for p in pods)

    def complete(self) -> bool:
        """Every node says that it is ready."""
        label = names.stage_label(RUNTIME)
        found = (self.cluster.server.store.get(kinds.NODES, ("", name)) for name in self.cluster.nodes)
        return all(r is not None and (r.object["metadata"].get("labels") or {}).get(label) == "ready" for r in found)


@asynccontextmanager
async def staged(root: Path) -> AsyncIterator[Stage]:
    """Two controllers and NODES agents; the registry of one node lacks the image."""
    replicas = {f"controller-{n}": CollectorRegistry() for n in (1, 2)}
    agents: dict[str, CollectorRegistry] = {f"node-{n}": CollectorRegistry() for n in range(1, NODES + 1)}

    def agent(node: SimNode, client: Client) -> Agent:
        registry = agents[node.name]
        counted = Client(node.agent_link, rng=node.rng, metrics=RequestMetrics(registry))
        return real_agent(node, counted, registry=registry)

    options = Options(
        root=root,
        clock=SystemClock(),
        agent=agent,
        nodes=NODES,
        seed=7,
        controllers=len(replicas),
        over="http",
        registry=replicas.__getitem__,
    )
    async with running(options) as cluster, AsyncExitStack() as stack:
        cluster.images.add(IMAGE)
        await _cut_off(cluster, BAD)
        targets = []
        for replica in cluster.replicas:
            replicas[replica.identity].register(ControllerCollector(lambda replica=replica: _of_replica(replica)))
            address = await _exported(stack, replicas[replica.identity])
            targets.append(Target("controller", address, {"instance": replica.identity}))
        for name, node in cluster.nodes.items():
            agents[name].register(AgentCollector(lambda node=node: _of_agent(node)))
            targets.append(Target("agent", await _exported(stack, agents[name]), {"instance": name, "node": name}))
        feed = Feed(lambda: seen(cluster), clock=options.clock, rng=random.Random(1))
        exporter = Exporter(
            0, ready=lambda: True, host=LOOPBACK, registry=CollectorRegistry(), routes=statuspage.routes(feed)
        )
        await stack.enter_async_context(exporter)
        yield Stage(cluster, tuple(targets), f"http://{LOOPBACK}:{exporter.port}{statuspage.PATH}")


async def _exported(stack: AsyncExitStack, registry: CollectorRegistry) -> str:
    exporter = Exporter(0, ready=lambda: True, host=LOOPBACK, registry=registry)
    await stack.enter_async_context(exporter)
    return f"{LOOPBACK}:{exporter.port}"


async def _cut_off(cluster: Cluster, name: str) -> None:
    """The node boots again with a registry of its own, in which the image is missing."""
    await cluster.power_off(name)
    cluster.nodes[name].images = set()
    cluster.power_on(name)
    await cluster.nodes[name].up()


def _of_replica(replica: Replica) -> ControllerFigures | None:
    return None if replica.controller is None else replica.controller.figures()


def _of_agent(node: SimNode) -> AgentFigures | None:
    return node.agent.figures() if isinstance(node.agent, Agent) else None


def _manifest() -> dict[str, Any]:
    """A payload that labels its node and sleeps; one node in trouble is tolerated, so that the others go on."""
    install = {
        **phase("seconds=1", f"drop={BINARY}", done="sim/installed=true", grace=GRACE),
        "image": IMAGE,
        "timeoutSeconds": DEADLINE,
    }
    body = manifest(bake=3, unavailable=3, install=install)
    body["spec"]["rollout"]["errorBudget"] = 1
    return body
