"""What befalls watches."""

from __future__ import annotations

import asyncio
import random

from reconciler.sim import kinds
from reconciler.sim.failures import expired
from reconciler.sim.faults import victims
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.flow import Flow
from reconciler.sim.past import Past
from reconciler.sim.requests import Request, target
from reconciler.sim.server import Trouble

LAG = (0.2, 8.0)
WINDOW_SECONDS = (10.0, 60.0)
SILENT_SECONDS = 120.0
"""Longer than a client waits for a bookmark."""
ROAD_SECONDS = 40.0
"""In which every client has come back with its old version: their backoff is at most 30."""
AHEAD = (1_000, 1_000_000)


@fault("watch")
async def watch(world: World, rng: random.Random) -> None:
    """All watches break, and every other time their history is compacted away as well."""
    if rng.random() < 0.5:
        await _expire(world, "watch", in_stream=rng.random() < 0.5)
    else:
        world.say("watch: all break")
        world.cluster.server.break_watches()


@fault("expired-status", once=True)
async def expired_status(world: World, rng: random.Random) -> None:
    """History is compacted and all watches break; who goes on from an old version is answered with 410."""
    await _expire(world, "expired-status", in_stream=False)


@fault("expired-stream", once=True)
async def expired_stream(world: World, rng: random.Random) -> None:
    """History is compacted and all watches break; who goes on from an old version gets 410 as an event."""
    await _expire(world, "expired-stream", in_stream=True)


@fault("watch-torn", once=True)
async def watch_torn(world: World, rng: random.Random) -> None:
    """Watches break in the middle of an event, or end there as if nothing were wrong."""
    victim = victims.some(world, rng)
    torn: set[str] = set()

    def flow(request: Request) -> Flow | None:
        """Once for each client and resource."""
        which = f"{request.user} {request.path}"
        if not victim.sent(request) or which in torn:
            return None
        torn.add(which)
        part, polite = rng.random(), rng.random() < 0.5
        world.say(f"watch-torn: {which} {'ends' if polite else 'breaks'} after {part:.0%} of an event")
        return Flow(torn=part, polite=polite)

    with world.cluster.server.knobs.flowing(flow):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))


@fault("watch-pieces", once=True)
async def watch_pieces(world: World, rng: random.Random) -> None:
    """The bytes of watches arrive in small pieces, cut anywhere."""
    victim, size = victims.some(world, rng), rng.choice((1, 16, 100))
    world.say(f"watch-pieces: {victim} receives {size} bytes at once at most")
    await _flowing(world, rng, victim, Flow(piece=size))


@fault("watch-silent", once=True)
async def watch_silent(world: World, rng: random.Random) -> None:
    """Watches that are open bring nothing more and do not end; the client has to notice."""
    victim = victims.some(world, rng)
    world.say(f"watch-silent: {victim}")
    for link in victims.hit(world, victim):
        link.kill_watches()


@fault("watch-lag", once=True)
async def watch_lag(world: World, rng: random.Random) -> None:
    """Watches bring everything seconds late."""
    victim, seconds = victims.some(world, rng), rng.uniform(*LAG)
    world.say(f"watch-lag: {victim} sees all events {seconds:.1f} s late")
    await _flowing(world, rng, victim, Flow(lag=seconds))


@fault("watch-reorder", once=True)
async def watch_reorder(world: World, rng: random.Random) -> None:
    """Each resource is late by another time, so that what happened first is seen last."""
    victim = victims.some(world, rng)
    late = {kind: rng.uniform(*LAG) for kind in kinds.KINDS if rng.random() < 0.5}
    told = ", ".join(f"{kind.plural} {seconds:.1f} s" for kind, seconds in late.items())
    world.say(f"watch-reorder: {victim} sees late: {told or 'nothing'}")

    def flow(request: Request) -> Flow | None:
        kind = target(request.path).kind
        return Flow(lag=late[kind]) if kind in late and victim.sent(request) else None

    with world.cluster.server.knobs.flowing(flow):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))


@fault("watch-stuck", once=True)
async def watch_stuck(world: World, rng: random.Random) -> None:
    """The watch cache stands still; then it brings what was missed, each object as it is by then."""
    knobs, store = world.cluster.server.knobs, world.cluster.server.store
    if knobs.past != Past():
        return  # somebody else has set the past
    victim, version = victims.some(world, rng), store.version
    world.say(f"watch-stuck: {victim} is shown nothing after version {version}")

    def shown(user: str, kind: kinds.Kind) -> int | None:
        return version if victim.sent(Request("GET", "/", user=user)) else None

    merging = Past(merges=lambda user, kind: victim.sent(Request("GET", "/", user=user)))
    knobs.past = Past(horizon=shown, merges=merging.merges)
    try:
        await asyncio.sleep(rng.uniform(1.0, 30.0))
        knobs.past = merging
        store.wake_all()
        await asyncio.sleep(1.0)
    finally:
        knobs.past = Past()
        store.wake_all()


@fault("no-bookmarks", once=True)
async def no_bookmarks(world: World, rng: random.Random) -> None:
    """No bookmarks come: a quiet watch is as silent as a dead one."""
    victim = victims.some(world, rng)
    world.say(f"no-bookmarks: {victim}")

    def flow(request: Request) -> Flow | None:
        return Flow(bookmarks=False) if victim.sent(request) else None

    with world.cluster.server.knobs.flowing(flow):
        await asyncio.sleep(rng.uniform(1.0, 3.0) * SILENT_SECONDS)


@fault("bookmark-ahead", once=True)
async def bookmark_ahead(world: World, rng: random.Random) -> None:
    """Other resources are written so much that versions leap; what no bookmark has carried along is compacted."""
    server, versions = world.cluster.server, rng.randint(*AHEAD)
    world.say(f"bookmark-ahead: versions leap by {versions}")
    server.store.leap(versions)
    leapt = server.store.version
    await asyncio.sleep(rng.choice((0.0, 1.5 * server.knobs.bookmark_seconds)))
    world.say("bookmark-ahead: history up to there is compacted, and all watches break")
    server.store.compact(leapt)
    server.break_watches()


async def _expire(world: World, name: str, *, in_stream: bool) -> None:
    server = world.cluster.server

    def answer(request: Request) -> Trouble | None:
        asked = request.query.get("resourceVersion", "")
        if not request.is_watch or not asked.isdigit() or not 0 < int(asked) < server.store.oldest:
            return None
        return Trouble(failure=expired(int(asked), server.store.oldest), in_stream=in_stream)

    world.say(f"{name}: all break, history is compacted; 410 {'in the stream' if in_stream else 'as the status'}")
    server.store.compact()
    server.break_watches()
    with server.knobs.troubled(answer):
        await asyncio.sleep(ROAD_SECONDS)


async def _flowing(world: World, rng: random.Random, victim: victims.Victim, flow: Flow) -> None:
    with world.cluster.server.knobs.flowing(lambda request: flow if victim.sent(request) else None):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))
