"""What a person at a keyboard does to the cluster: again until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from reconciler.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, TransportError
from reconciler.kube.resources import NODES
from reconciler.sim import kinds
from reconciler.sim.cluster import Foreign
from reconciler.sim.faults.registry import World
from reconciler.sim.kinds import Kind, Object

PATIENCE = 120.0
"""Seconds for which somebody tries what the API server does not answer."""
PAUSE = 0.5

T = TypeVar("T")


async def persist(call: Callable[[], Awaitable[T]], *, patience: float = PATIENCE) -> T | None:
    """The answer; None when the object is not there, or is there already, or nobody answers in time."""
    end = asyncio.get_running_loop().time() + patience
    while asyncio.get_running_loop().time() < end:
        try:
            return await call()
        except (NotFound, AlreadyExists):
            return None
        except (ApiError, TransportError):
            await asyncio.sleep(PAUSE)
    return None


def stored(world: World, kind: Kind, name: str, namespace: str = "") -> Object | None:
    record = world.cluster.server.store.get(kind, (namespace, name))
    return None if record is None else record.object


async def edit_node(world: World, name: str, change: Callable[[Object], Object | None]) -> bool:
    """Patch the Node by what `change` makes of it as it is; whether there was something to change."""

    tried = False

    async def attempt() -> bool:
        nonlocal tried
        there = stored(world, kinds.NODES, name)
        patch = None if there is None else change(there)
        if there is None or patch is None:
            return tried  # the answer was lost, and not the change
        meta = {**patch.get("metadata", {}), "resourceVersion": there["metadata"]["resourceVersion"]}
        try:
            await world.cluster.admin.patch(NODES, name, {**patch, "metadata": meta})
        except Conflict as conflict:
            raise TransportError("somebody was quicker") from conflict
        except TransportError:
            tried = True
            raise
        return True

    return bool(await persist(attempt))


async def mark_node(world: World, name: str, part: str, marks: dict[str, str | None]) -> bool:
    """Set or take off `labels` or `annotations` (None); whether the Node is there."""
    body: dict[str, Any] = {"metadata": {part: marks}}
    return await persist(lambda: world.cluster.admin.patch(NODES, name, body)) is not None


@contextmanager
def standing(world: World, what: Foreign) -> Iterator[None]:
    """Inside the block `what` is to survive us, unless somebody else forgets it before."""
    world.foreign.append(what)
    try:
        yield
    finally:
        forget(world, lambda thing: thing is what)


def forget(world: World, chosen: Callable[[Foreign], bool]) -> None:
    """They were taken away by somebody who may."""
    world.foreign[:] = [thing for thing in world.foreign if not chosen(thing)]
