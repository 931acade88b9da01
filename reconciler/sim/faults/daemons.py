"""What befalls containerd."""

from __future__ import annotations

import asyncio
import random

from reconciler.api import names
from reconciler.sim import kinds
from reconciler.sim.containerd import START_LIMIT_BURST, START_SECONDS
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.node import NOT_READY_AFTER, SimNode

OUTAGE_SECONDS = (0.5, 2.5)
PATIENCE = 60.0
"""Seconds for which a kill is lain in wait for."""
LOOK = 0.02
SERVED_LIMIT = 120.0
WHILE_SECONDS = (5.0, 60.0)
HANG_SECONDS = (1.0, 20.0)
NOT_READY_SECONDS = (NOT_READY_AFTER + 5, 120.0)
STOPPED_SECONDS = (5.0, 180.0)
VERSIONS = ("1.6.20", "1.6.39", "1.7.34")
"""Releases whose configuration `sim.config` reads as they do."""


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
                await node.do(node.outage(seconds))
                return
        known = now


@fault("outage")
async def outage(world: World, rng: random.Random) -> None:
    """containerd is stopped for a moment."""
    node, seconds = world.some_node(rng), rng.uniform(*OUTAGE_SECONDS)
    if node.daemon.serving:
        world.say(f"outage: containerd of {node.name} is away for {seconds:.1f} s")
        await node.do(node.outage(seconds))


@fault("crash")
async def crash(world: World, rng: random.Random) -> None:
    """containerd dies, and systemd starts it again after 5 s."""
    node = world.some_node(rng)
    if node.daemon.serving:
        world.say(f"crash: containerd of {node.name}")
        node.daemon.crash()


@fault("killed-again", once=True)
async def killed_again(world: World, rng: random.Random) -> None:
    """containerd dies each time that it serves, for a while."""
    node, times = world.some_living(rng), rng.randint(2, 8)
    if node is None:
        return
    world.say(f"killed-again: containerd of {node.name}, {times} times")
    for _ in range(times):
        await asyncio.sleep(rng.uniform(0.0, 3.0))
        try:
            async with asyncio.timeout(SERVED_LIMIT):
                await node.daemon.served()
        except TimeoutError:
            return
        node.daemon.crash()


@fault("slow-start", once=True)
async def slow_start(world: World, rng: random.Random) -> None:
    """Every start of one containerd takes long, the next one at once."""
    node, least = world.some_living(rng, lambda n: n.daemon.start_seconds == START_SECONDS), rng.uniform(2.0, 15.0)
    if node is None:
        return
    world.say(f"slow-start: containerd of {node.name} takes {least:.0f} s and more")
    node.daemon.start_seconds = (least, least * 1.5)
    try:
        await node.do(node.daemon.restart("admin"))
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        node.daemon.start_seconds = START_SECONDS


@fault("without-cri", once=True)
async def without_cri(world: World, rng: random.Random) -> None:
    """One containerd starts without its CRI plugin, whatever its configuration says, until a person mends it."""
    node, seconds = world.some_living(rng, lambda n: not n.daemon.without_cri), rng.uniform(*WHILE_SECONDS)
    if node is None:
        return
    world.say(f"without-cri: containerd of {node.name}, for {seconds:.0f} s")
    node.daemon.without_cri = "failed to create CRI service: too many open files"
    try:
        await node.do(node.daemon.restart("admin"))
        await asyncio.sleep(seconds)
    finally:
        node.daemon.without_cri = ""
        await node.do(_restarted(node))


@fault("cri-hangs", once=True)
async def cri_hangs(world: World, rng: random.Random) -> None:
    """CRI of one node does not answer for some seconds."""
    await _hung(world, rng, "cri-hangs", rng.uniform(*HANG_SECONDS))


@fault("not-ready", once=True)
async def not_ready(world: World, rng: random.Random) -> None:
    """CRI of one node does not answer until its kubelet says NotReady, and for a while longer."""
    await _hung(world, rng, "not-ready", rng.uniform(*NOT_READY_SECONDS))


@fault("start-limit", once=True)
async def start_limit(world: World, rng: random.Random) -> None:
    """Somebody restarts containerd until systemd's start limit leaves it failed, and starts it later if nobody did."""
    node = world.some_living(rng, lambda n: n.daemon.serving)
    if node is None:
        return
    world.say(f"start-limit: containerd of {node.name}")
    await node.do(_restarts(node))
    try:
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        if node.daemon.unit.active == "failed":  # an agent that was killed by then is not started without CRI
            await node.do(_started(node))


@fault("stopped", once=True)
async def stopped(world: World, rng: random.Random) -> None:
    """An admin stops containerd and starts it again after a while."""
    node, seconds = world.some_living(rng), rng.uniform(*STOPPED_SECONDS)
    if node is None:
        return
    world.say(f"stopped: containerd of {node.name}, for {seconds:.0f} s")
    try:
        await node.do(node.daemon.stop())
        await asyncio.sleep(seconds)
    finally:
        await node.do(_started(node))


@fault("upgrade", once=True)
async def upgrade(world: World, rng: random.Random) -> None:
    """Another release of containerd is installed; its restart comes with it, or later."""
    node, later = world.some_living(rng), rng.choice((0.0, rng.uniform(*WHILE_SECONDS)))
    if node is None:
        return
    version = rng.choice([v for v in VERSIONS if v != node.daemon.installed])
    world.say(f"upgrade: containerd of {node.name} to {version}, restarted {later:.0f} s later")
    node.daemon.installed = version
    try:
        await asyncio.sleep(later)
    finally:
        await node.do(node.daemon.restart("upgrade"))


async def _hung(world: World, rng: random.Random, name: str, seconds: float) -> None:
    node = world.some_living(rng, lambda n: not n.daemon.hang)
    if node is None:
        return
    world.say(f"{name}: CRI of {node.name} hangs for {seconds:.0f} s")
    node.daemon.hang = True
    try:
        await asyncio.sleep(seconds)
    finally:
        node.daemon.hang = False


async def _restarts(node: SimNode) -> None:
    for _ in range(START_LIMIT_BURST + 1):
        if await node.daemon.restart("admin") == "failed":
            return


def _dying(world: World) -> dict[str, str]:
    """UID → node of the phase pods that are being deleted."""
    return {
        record.object["metadata"]["uid"]: record.object["spec"]["nodeName"]
        for _, record in world.cluster.server.store.all(kinds.PODS)
        if "deletionTimestamp" in record.object["metadata"]
        and (record.object["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
    }


async def _started(node: SimNode) -> None:
    """By a person, who does not mind a start limit."""
    node.daemon.reset_failed()
    await node.daemon.start("admin")


async def _restarted(node: SimNode) -> None:
    node.daemon.reset_failed()
    await node.daemon.restart("admin")
