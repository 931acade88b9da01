"""What befalls the network between one process of ours and the API server, and the server itself."""

from __future__ import annotations

import asyncio
import random

from reconciler.sim.faults import victims
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

CUT_SECONDS = (0.5, 5.0, 15.0, 90.0)
"""The shortest is missed by nobody, the third costs the Lease, after the longest a watch has been taken for dead."""
WIRE_BYTES = 5_000
"""Some answers long: of one Node, or of a page of a few."""
DOWN_SECONDS = (0.5, 15.0)


@fault("net-cut", once=True)
async def net_cut(world: World, rng: random.Random) -> None:
    """One process cannot reach the API server: requests fail at once, its watches die without a word."""
    victim, seconds = victims.one(world, rng), _seconds(rng)
    cut = victims.hit(world, victim)
    world.say(f"net-cut: {victim} for {seconds:.1f} s")
    for link in cut:
        link.unplug()
    try:
        await asyncio.sleep(seconds)
    finally:
        for link in cut:
            link.plug()


@fault("net-stall", once=True)
async def net_stall(world: World, rng: random.Random) -> None:
    """What one process and the API server send each other arrives late, also what has been given up."""
    victim, seconds = victims.one(world, rng), _seconds(rng)
    stalled = victims.hit(world, victim)
    world.say(f"net-stall: {victim} for {seconds:.1f} s")
    for link in stalled:
        link.stall()
    try:
        await asyncio.sleep(seconds)
    finally:
        for link in stalled:
            link.resume()


@fault("wire-cut", once=True)
async def wire_cut(world: World, rng: random.Random) -> None:
    """The open connections of some of ours break at any byte; only where there is a wire (`Options.over`)."""
    victim, after = victims.some(world, rng), int(WIRE_BYTES ** rng.random())
    wires = [wire for user, wire in sorted(world.cluster.wires.items()) if victim.sent(Request("GET", "/", user=user))]
    if found := sum(wire.cut(after) for wire in wires):
        world.say(f"wire-cut: {found} connections of {victim} break {after} bytes from now")


@fault("server-restart", once=True)
async def server_restart(world: World, rng: random.Random) -> None:
    """The API server is away for seconds and comes back with an empty watch cache, or another one takes over."""
    server, seconds, empty = world.cluster.server, rng.uniform(*DOWN_SECONDS), rng.random() < 0.5
    world.say(f"server-restart: away for {seconds:.1f} s{', its watch cache is empty then' if empty else ''}")

    def refused(request: Request) -> Trouble | None:
        """A person waits until it is back."""
        return None if request.user == "admin" else Trouble(drop_before=True)

    server.break_watches()
    with server.knobs.troubled(refused):
        await asyncio.sleep(seconds)
    if empty:
        server.store.compact()


def _seconds(rng: random.Random) -> float:
    return rng.choice(CUT_SECONDS) * rng.uniform(0.5, 1.5)
