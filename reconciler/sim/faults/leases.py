"""What befalls the Lease that the leader holds."""

from __future__ import annotations

import asyncio
import random

from reconciler.sim import kinds
from reconciler.sim.failures import ApiFailure
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.faults.victims import ALL, OURS, Victim
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

SLOW = (3.0, 30.0)
"""Seconds: the deadline of a renewal is 7, and the Lease's own time 10."""
WINDOW_SECONDS = (3.0, 40.0)
FAILURES = (
    Trouble(failure=ApiFailure(500, "InternalError", "etcdserver: request timed out")),
    Trouble(failure=ApiFailure(503, "ServiceUnavailable", "the server is overloaded")),
    Trouble(failure=ApiFailure(409, "Conflict", "the object has been modified")),
    Trouble(failure=ApiFailure(403, "Forbidden", "leases.coordination.k8s.io is forbidden")),
    Trouble(drop_before=True),
    Trouble(drop_after=True),
)


@fault("lease-slow", once=True)
async def lease_slow(world: World, rng: random.Random) -> None:
    """Requests for the Lease, and no others, take longer than its deadlines."""
    victim, seconds, late = _candidate(world, rng), rng.uniform(*SLOW), rng.random() < 0.5
    trouble = Trouble(delay_after=seconds) if late else Trouble(delay=seconds)
    world.say(f"lease-slow: {victim} waits {seconds:.1f} s for the Lease, {'done at once' if late else 'done late'}")
    await _window(world, rng, victim, trouble)


@fault("lease-fails", once=True)
async def lease_fails(world: World, rng: random.Random) -> None:
    """Writes of the Lease fail, and nothing else does."""
    victim, trouble = _candidate(world, rng), rng.choice(FAILURES)
    world.say(f"lease-fails: writes of {victim}: {trouble}")
    await _window(world, rng, victim, trouble, reads=False)


@fault("lease-deleted", once=True)
async def lease_deleted(world: World, rng: random.Random) -> None:
    """Somebody deletes the Lease: whoever comes first makes it, while the leader still thinks that it leads."""
    store = world.cluster.server.store
    for key, _ in [*store.all(kinds.LEASES)]:
        world.say(f"lease-deleted: {key[1]}")
        store.remove(kinds.LEASES, key)


def _candidate(world: World, rng: random.Random) -> Victim:
    """All controllers, or the leader alone."""
    leader = world.cluster.leader
    if leader is None or rng.random() < 0.3:
        return ALL
    return Victim(f"controller:{leader.identity}")


async def _window(world: World, rng: random.Random, victim: Victim, trouble: Trouble, *, reads: bool = True) -> None:
    def befalls(request: Request) -> Trouble | None:
        hit = "/leases" in request.path and request.user.startswith(OURS) and victim.sent(request)
        return trouble if hit and (reads or request.method != "GET") else None

    with world.cluster.server.knobs.troubled(befalls):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))
