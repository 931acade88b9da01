"""Every run ends, and then nothing is written any more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from reconciler.api.node import REST
from reconciler.phases.deadlines import AGENT_TIMEOUT, BACKOFF_BASE, VERIFY_GRACE
from reconciler.phases.moving import MAX_ATTEMPTS
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.invariants.base import OURS, states
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.store import Event

QUIET_SECONDS = 600.0
"""How long nothing may happen."""
SETTLE_SECONDS = 60.0
"""From the last node that has ended until everything that is told of it has been written: a status a second, Events,
reports after 20 s, objects of ended pods."""
LOOK = 1.0
PHASE_TIMEOUT = 600.0
"""Seconds, the default of `timeoutSeconds`."""


async def rest(cluster: Cluster, seconds: float | None = None) -> list[str]:
    """Awaited when faults have ended: what keeps the cluster from its rest, one sentence each; nothing when it rests.

    Within `seconds` (what follows from the deadlines of what is to be done, when None) every runtime on every Node is
    ready, absent or failed, or the status of its NodeRuntime names it as failed or stuck. Then no process of ours
    writes for 10 minutes, Leases apart, and no containerd is started.
    """
    end = _now() + (bound(cluster) if seconds is None else seconds)
    while unfinished := sorted(_unfinished(cluster)):
        if _now() >= end:
            return unfinished
        await asyncio.sleep(LOOK)
    await asyncio.sleep(SETTLE_SECONDS)
    return await _quiet(cluster)


def bound(cluster: Cluster) -> float:
    """Seconds within which all that is to be done ends, if the nodes go one after the other and each attempt fails."""
    whole = 0.0
    for runtime in _objects(cluster, kinds.NODERUNTIMES):
        spec = runtime.get("spec") or {}
        phases = [phase for phase in (spec.get("phases") or {}).values() if phase]
        pods = sum(float(phase.get("timeoutSeconds") or PHASE_TIMEOUT) for phase in phases) * MAX_ATTEMPTS
        backoff = len(phases) * BACKOFF_BASE * 2**MAX_ATTEMPTS
        bake = float((spec.get("rollout") or {}).get("bakeSeconds") or 0)
        whole += pods + backoff + 2 * AGENT_TIMEOUT + bake + VERIFY_GRACE
    return max(whole, SETTLE_SECONDS) * max(len(cluster.nodes), 1)


def _unfinished(cluster: Cluster) -> Iterator[str]:
    named: set[tuple[str, str]] = set()
    for runtime in _objects(cluster, kinds.NODERUNTIMES):
        told = (runtime.get("status") or {}).get("failed") or ()
        named.update((runtime["metadata"]["name"], entry["node"]) for entry in told if entry.get("reason"))
    for node in _objects(cluster, kinds.NODES):
        name = node["metadata"]["name"]
        for owner, state in states(node).items():
            if state.stage not in REST and (owner, name) not in named:
                yield f"{name}: {owner} is in stage {state.stage}, attempt {state.attempt}, and nobody says why"


async def _quiet(cluster: Cluster) -> list[str]:
    seen: Counter[str] = Counter()

    def wrote(kind: Kind, event: Event) -> None:
        request = cluster.server.asking
        if request is not None and request.user.startswith(OURS) and kind != kinds.LEASES:
            seen[f"{request.user} wrote to {kind.plural} {event.key[1]}"] += 1

    starts = {name: len(node.daemon.starts) for name, node in cluster.nodes.items()}
    cluster.server.store.written.append(wrote)
    try:
        await asyncio.sleep(QUIET_SECONDS)
    finally:
        cluster.server.store.written.remove(wrote)
    for name, node in cluster.nodes.items():
        if more := len(node.daemon.starts) - starts.get(name, 0):
            seen[f"containerd of {name} was started"] += more
    return [f"no rest: {what}, {count} times in {QUIET_SECONDS:.0f} s" for what, count in sorted(seen.items())]


def _objects(cluster: Cluster, kind: Kind) -> Iterator[Object]:
    return (record.object for _, record in cluster.server.store.all(kind))


def _now() -> float:
    return asyncio.get_running_loop().time()
