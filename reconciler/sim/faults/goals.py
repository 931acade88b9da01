"""What people ask of the product, at any moment: the CLI's commands, and edits of NodeRuntimes."""

from __future__ import annotations

import asyncio
import random

from reconciler.api import names
from reconciler.api.clock import rfc3339
from reconciler.kube.errors import AlreadyExists, TransportError
from reconciler.kube.resources import CONFIGMAPS, NODERUNTIMES
from reconciler.sim import kinds
from reconciler.sim.faults import people
from reconciler.sim.faults.registry import World, fault

WHILE_SECONDS = (5.0, 120.0)
PROPAGATIONS = ("Background", "Foreground", "Orphan")
GONE_LIMIT = 900.0
"""Seconds for which somebody waits for a deletion: it has deadlines of its own."""


@fault("created", once=True)
async def created(world: World, rng: random.Random) -> None:
    """An admin creates a NodeRuntime that is not there."""
    missing = [name for name in world.names if name not in world.runtimes()]
    if missing and world.bodies is not None:
        await _create(world, rng, rng.choice(missing), "created")


@fault("edited", once=True)
async def edited(world: World, rng: random.Random) -> None:
    """An admin applies another spec to a NodeRuntime."""
    if not (known := world.runtimes()) or world.bodies is None:
        return
    name = rng.choice(known)
    spec = world.bodies(name, rng)["spec"]
    world.say(f"edited: {name}")

    async def attempt() -> None:
        there = people.stored(world, kinds.NODERUNTIMES, name)
        if there is not None:  # the whole of it: of the old spec nothing stays
            await world.cluster.admin.replace(NODERUNTIMES, name, {**there, "spec": spec})

    await people.persist(attempt)


@fault("deleted", once=True)
async def deleted(world: World, rng: random.Random) -> None:
    """An admin deletes a NodeRuntime, with any propagation policy."""
    if known := world.runtimes():
        await _delete(world, rng, rng.choice(known), "deleted")


@fault("deleted-and-back", once=True)
async def deleted_and_back(world: World, rng: random.Random) -> None:
    """An admin deletes a NodeRuntime and creates it again as soon as it is gone."""
    if not (known := world.runtimes()) or world.bodies is None:
        return
    name = rng.choice(known)
    await _delete(world, rng, name, "deleted-and-back")
    await _create(world, rng, name, "deleted-and-back")


@fault("paused", once=True)
async def paused(world: World, rng: random.Random) -> None:
    """Somebody pauses a NodeRuntime, and resumes it after a while."""
    if not (known := world.runtimes()):
        return
    name, seconds = rng.choice(known), rng.uniform(*WHILE_SECONDS)
    world.say(f"paused: {name} for {seconds:.0f} s")

    async def put(value: bool) -> None:
        await people.persist(lambda: world.cluster.admin.patch(NODERUNTIMES, name, {"spec": {"paused": value}}))

    try:
        await put(True)
        await asyncio.sleep(seconds)
    finally:
        await put(False)


@fault("retry", once=True)
async def retry(world: World, rng: random.Random) -> None:
    """Somebody asks for another try on a node that a NodeRuntime is on."""
    found = _held(world, world.runtimes())
    if found:
        node, name = rng.choice(found)
        world.say(f"retry: {name} on {node}")
        await people.mark_node(world, node, "annotations", {names.retry_annotation(name): "true"})


@fault("skip", once=True)
async def skip(world: World, rng: random.Random) -> None:
    """Somebody gives a node up for a NodeRuntime that is being deleted."""
    going = [name for name in world.runtimes() if _is_going(world, name)]
    found = _held(world, going)
    if found:
        node, name = rng.choice(found)
        world.say(f"skip: {name} on {node}")
        await people.mark_node(world, node, "annotations", {names.skip_annotation(name): "true"})


@fault("stop", once=True)
async def stop(world: World, rng: random.Random) -> None:
    """Somebody stops all rollouts, and lifts that after a while."""
    seconds, namespace = rng.uniform(*WHILE_SECONDS), world.cluster.options.namespace
    data = {
        names.STOP_REASON: f"fault {rng.randrange(1_000_000)}",
        names.STOP_AT: rfc3339(world.cluster.options.clock.now()),
    }
    body = {"metadata": {"name": names.STOP_NAME}, "data": data}
    await people.persist(lambda: world.cluster.admin.create(CONFIGMAPS, body, namespace))
    there = people.stored(world, kinds.named("ConfigMap"), names.STOP_NAME, namespace)
    if there is None or there["data"] != data:
        return  # somebody else's
    world.say(f"stop: for {seconds:.0f} s")
    try:
        await asyncio.sleep(seconds)
    finally:
        await people.persist(lambda: world.cluster.admin.delete(CONFIGMAPS, names.STOP_NAME, namespace))


def _held(world: World, runtimes: list[str]) -> list[tuple[str, str]]:
    """Node and NodeRuntime wherever one has a state."""
    found = []
    for name in sorted(world.cluster.nodes):
        marks = (people.stored(world, kinds.NODES, name) or {"metadata": {}})["metadata"].get("annotations") or {}
        found += [(name, runtime) for runtime in runtimes if names.state_annotation(runtime) in marks]
    return found


def _is_going(world: World, name: str) -> bool:
    there = people.stored(world, kinds.NODERUNTIMES, name)
    return there is not None and "deletionTimestamp" in there["metadata"]


async def _delete(world: World, rng: random.Random, name: str, what: str) -> None:
    policy = rng.choice(PROPAGATIONS)
    world.say(f"{what}: {name}, {policy}")
    await people.persist(lambda: world.cluster.admin.delete(NODERUNTIMES, name, propagation=policy))


async def _create(world: World, rng: random.Random, name: str, what: str) -> None:
    if world.bodies is None:
        return
    body = world.bodies(name, rng)
    world.say(f"{what}: {name} is created")

    async def attempt() -> None:
        try:
            await world.cluster.admin.create(NODERUNTIMES, body)
        except AlreadyExists as error:
            if _is_going(world, name):
                raise TransportError("the old one is not gone yet") from error

    await people.persist(attempt, patience=GONE_LIMIT)
