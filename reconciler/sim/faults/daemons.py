"""What befalls containerd."""

from __future__ import annotations

import asyncio
import random

from reconciler.api import names
from reconciler.sim import kinds
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.node import SimNode

OUTAGE_SECONDS = (0.5, 2.5)
PATIENCE = 60.0
"""Seconds for which a kill is lain in wait for."""
LOOK = 0.02


@fault("kill-window")
async def kill_window(world: World, rng: random.Random) -> None:
    """containerd is stopped just as a phase pod is being killed."""
    seconds = rng.uniform(*OUTAGE_SECONDS)
    end = asyncio.get_running_loop().time() + PATIENCE
    known = _dying(world)
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(LOOK)
        now = _dying(world)
        for uid in (uid for uid in now if uid not in known):
            node = world.cluster.nodes.get(now[uid])
            if node is not None and node.daemon.serving:
                world.say(f"kill-window: containerd of {node.name} is away for {seconds:.1f} s")
                await _outage(world, node, seconds)
                return
        known = now


@fault("outage")
async def outage(world: World, rng: random.Random) -> None:
    """containerd is stopped for a moment."""
    node, seconds = world.some_node(rng), rng.uniform(*OUTAGE_SECONDS)
    if node.daemon.serving:
        world.say(f"outage: containerd of {node.name} is away for {seconds:.1f} s")
        await _outage(world, node, seconds)


@fault("crash")
async def crash(world: World, rng: random.Random) -> None:
    """containerd dies, and systemd starts it again after 5 s."""
    node = world.some_node(rng)
    if node.daemon.serving:
        world.say(f"crash: containerd of {node.name}")
        node.daemon.crash()


def _dying(world: World) -> dict[str, str]:
    """UID → node of the phase pods that are being deleted."""
    return {
        record.object["metadata"]["uid"]: record.object["spec"]["nodeName"]
        for _, record in world.cluster.server.store.all(kinds.PODS)
        if "deletionTimestamp" in record.object["metadata"]
        and (record.object["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
    }


async def _outage(world: World, node: SimNode, seconds: float) -> None:
    """Not cut short when this is cancelled: whoever has stopped containerd starts it again."""
    await asyncio.shield(world.cluster.spawn(node.outage(seconds)))
