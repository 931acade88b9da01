"""The real agent on a simulated node: its CRI, systemd and files are the node's, everything else is as on a host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import REGISTRY, CollectorRegistry

from metrics.agent import Metrics
from reconciler.agent import Agent, Deps, SocketWatch
from reconciler.hostconfig import HostConfig
from reconciler.hostconfig.writing import Trace, nothing
from reconciler.kube.client import Client
from reconciler.sim.node import SimNode


def real_agent(
    node: SimNode, client: Client, *, trace: Trace = nothing, registry: CollectorRegistry = REGISTRY
) -> Agent:
    """The agent of `node`, for its present life. `trace` sees every step of its changes, on another thread.

    `registry`: where it counts; the agents of one process share one unless they are given their own.
    """
    cri, systemd = node.cri(), node.systemd()
    host = HostConfig(
        node.root,
        version=node.daemon.version,
        systemd=systemd,
        cri=cri,
        clock=node.clock,
        boot_id=lambda: node.boot_id,
        trace=_steps(node, trace),
    )
    return Agent(
        Deps(
            node=node.name,
            client=client,
            cri=cri,
            systemd=systemd,
            host=host,
            clock=node.clock,
            rng=node.rng,
            metrics=Metrics(registry),
            registry=registry,
            watch=_watch(node),
            boot=node.boot_id,
            namespace=node.namespace,
            replaced=node.replace_agent,
        )
    )


def _steps(node: SimNode, trace: Trace) -> Trace:
    life = node.life

    def step(what: str) -> None:
        life.check()
        trace(what)
        for hook in tuple(node.on_step):
            try:
                hook(what)
            except OSError:
                node.refusals += 1
                raise

    return step


def _watch(node: SimNode) -> SocketWatch:
    """The socket comes and goes with the daemon; what inotify tells on a host, the daemon tells here."""

    @asynccontextmanager
    async def watching(changed: Callable[[], None]) -> AsyncIterator[None]:
        stop = node.daemon.on_change(changed)
        try:
            yield
        finally:
            stop()

    return watching
