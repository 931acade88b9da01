"""What befalls the disk of a node, and the lock of its configuration."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.hostconfig.writing import Trace
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.judge import LOCK
from reconciler.sim.node import SimNode

SECONDS = (5.0, 90.0)
WRITES = ("journal", "keep", "temporary", "in place", "proven set")
"""Steps of a change (`hostconfig.writing.Trace`) that need space."""
CHANGES = (*WRITES, "journal gone", "rename", "unlink", "sync")
"""Steps that a disk that is read-only refuses."""
SYNCS = ("journal", "keep", "temporary", "proven set", "sync")
"""Steps that end with an fsync."""


@fault("disk-full", once=True)
async def disk_full(world: World, rng: random.Random) -> None:
    """The disk of one node is full from some write of its agent on, for a while."""
    await _fails(world, rng, "disk-full", errno.ENOSPC, WRITES, good=rng.randint(0, 4))


@fault("disk-read-only", once=True)
async def disk_read_only(world: World, rng: random.Random) -> None:
    """The disk of one node is read-only from some change of its agent on, for a while."""
    await _fails(world, rng, "disk-read-only", errno.EROFS, CHANGES, good=rng.randint(0, 6))


@fault("fsync", once=True)
async def fsync(world: World, rng: random.Random) -> None:
    """One fsync of an agent fails, or all do for a while."""
    many = rng.choice((1, 1_000))
    await _fails(world, rng, "fsync", errno.EIO, SYNCS, good=rng.randint(0, 6), bad=many)


@fault("lock-held", once=True)
async def lock_held(world: World, rng: random.Random) -> None:
    """Another process holds the lock of a node's configuration for a while."""
    node, seconds = world.some_living(rng), rng.uniform(*SECONDS)
    if node is None:
        return
    path = node.root / LOCK
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        world.say(f"lock-held: that of {node.name}, for {seconds:.0f} s")
        await asyncio.sleep(seconds)
    except BlockingIOError:
        return  # a change is under way
    finally:
        os.close(handle)


async def _fails(
    world: World, rng: random.Random, name: str, error: int, steps: tuple[str, ...], *, good: int, bad: int = 1_000
) -> None:
    """Of `steps`, `good` are done, then `bad` fail."""
    node, seconds = world.some_living(rng), rng.uniform(*SECONDS)
    if node is None:
        return
    world.say(f"{name}: that of {node.name} for {seconds:.0f} s, after {good} steps")
    done = 0

    def meet(step: str) -> None:
        nonlocal done
        if not any(step == known or step.startswith(f"{known} /") for known in steps):
            return
        done += 1
        if good < done <= good + bad:
            raise OSError(error, os.strerror(error), step)

    with watched(node, meet):
        await asyncio.sleep(seconds)


@contextmanager
def watched(node: SimNode, hook: Trace) -> Iterator[None]:
    """Inside the block `hook` is told of each step of a change of the node's configuration."""
    node.on_step.append(hook)
    try:
        yield
    finally:
        node.on_step.remove(hook)
