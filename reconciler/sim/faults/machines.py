"""What befalls whole machines, their kubelets and their Node objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.sim.cluster import Cluster
from reconciler.sim.faults import people
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.node import SimNode

REBOOT_SECONDS = (5.0, 30.0)
LOSS_SECONDS = (60.0, 300.0)
"""Long enough that the node lifecycle controller doubts it."""
GAP_SECONDS = (0.5, 90.0)
"""For which there is no Node object: less and more than pod garbage collection waits."""
STAY_SECONDS = (30.0, 600.0)
BOOT_LIMIT = 120.0
LEAST_NODES = 2
"""That many stay."""


@fault("reboot", once=True)
async def reboot(world: World, rng: random.Random) -> None:
    """A machine is rebooted."""
    await _away(world, rng, "reboot", rng.uniform(*REBOOT_SECONDS))


@fault("power-loss", once=True)
async def power_loss(world: World, rng: random.Random) -> None:
    """A machine has no power for minutes."""
    await _away(world, rng, "power-loss", rng.uniform(*LOSS_SECONDS))


@fault("kubelet")
async def kubelet(world: World, rng: random.Random) -> None:
    """A kubelet is restarted."""
    node = world.some_living(rng)
    if node is not None:
        world.say(f"kubelet: that of {node.name} is restarted")
        await node.restart_kubelet()


@fault("node-again", once=True)
async def node_again(world: World, rng: random.Random) -> None:
    """A Node is deleted, and its kubelet makes one of the same name with another UID; the disk is the same."""
    node, gap, rebooted = world.some_living(rng), rng.uniform(*GAP_SECONDS), rng.random() < 0.5
    if node is None:
        return
    how = "its machine is rebooted" if rebooted else "its kubelet is restarted"
    world.say(f"node-again: Node {node.name} is deleted, and {how} after {gap:.1f} s")
    if not rebooted:
        try:
            await _delete(world, node)
            await asyncio.sleep(gap)
        finally:
            await node.restart_kubelet()
        return
    async with _without_power(world.cluster, node):
        await _delete(world, node)
        await asyncio.sleep(gap)
    await _up(node)


@fault("node-replaced", once=True)
async def node_replaced(world: World, rng: random.Random) -> None:
    """Another machine, with a fresh disk, comes under a node's name; its Node is sometimes deleted before."""
    node, gap, deleted = world.some_living(rng), rng.uniform(*GAP_SECONDS), rng.random() < 0.7
    if node is None:
        return
    with_it = " and its Node is deleted" if deleted else ""
    world.say(f"node-replaced: the disk of {node.name} is lost{with_it}, and it is back after {gap:.1f} s")
    async with _without_power(world.cluster, node):
        if deleted:
            await _delete(world, node)
        node.replace_machine()
        people.forget(world, lambda thing: thing.node == node.name and thing.kind == "text")
        await asyncio.sleep(gap)
    await _up(node)


@fault("node-joins", once=True)
async def node_joins(world: World, rng: random.Random) -> None:
    """A new node joins; every other one leaves for good after a while."""
    stays, seconds = rng.random() < 0.5, rng.uniform(*STAY_SECONDS)
    name = _new_name(world)
    labels = dict(next(iter(world.cluster.nodes.values())).labels)
    world.say(f"node-joins: {name}" + ("" if stays else f", for {seconds:.0f} s"))
    node = world.cluster.add_node(name, **labels)
    await _up(node)
    if stays:
        return
    try:
        await asyncio.sleep(seconds)
    finally:
        await _leave(world, node)


@fault("node-leaves", once=True)
async def node_leaves(world: World, rng: random.Random) -> None:
    """A machine leaves for good, and its Node is deleted."""
    node = world.some_living(rng)
    if node is not None and len(world.cluster.nodes) > LEAST_NODES:
        world.say(f"node-leaves: {node.name}")
        await _leave(world, node)


async def _leave(world: World, node: SimNode) -> None:
    if world.cluster.nodes.get(node.name) is not node or not world.cluster.is_on(node.name):
        return
    people.forget(world, lambda thing: thing.node == node.name)
    await world.cluster.remove_node(node.name)
    await _delete(world, node)


def _new_name(world: World) -> str:
    """One that no machine has had: each has left its disk."""
    disks = (path.name for path in world.cluster.options.root.iterdir())
    return f"node-{1 + max(int(name.removeprefix('node-')) for name in disks if name.startswith('node-'))}"


async def _away(world: World, rng: random.Random, name: str, seconds: float) -> None:
    node = world.some_living(rng)
    if node is None:
        return
    world.say(f"{name}: {node.name} is off for {seconds:.0f} s")
    async with _without_power(world.cluster, node):
        await asyncio.sleep(seconds)
    await _up(node)


@asynccontextmanager
async def _without_power(cluster: Cluster, node: SimNode) -> AsyncIterator[None]:
    """Off inside the block, in which it still is one of the cluster's nodes."""
    off = cluster.spawn(cluster.power_off(node.name))
    try:
        await asyncio.shield(off)
        yield
    finally:
        await asyncio.wait({off})
        cluster.power_on(node.name)


async def _delete(world: World, node: SimNode) -> None:
    """The Node goes with all that others have written on it."""
    people.forget(world, lambda thing: thing.node == node.name and thing.kind != "text")
    await people.persist(lambda: world.cluster.delete_node(node.name))


async def _up(node: SimNode) -> None:
    """A machine whose API server does not answer boots on without us."""
    try:
        async with asyncio.timeout(BOOT_LIMIT):
            await node.up()
    except TimeoutError:
        return
