"""What befalls the wall clock. Nothing of it changes how long a second is."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from reconciler.sim.clock import VirtualClock
from reconciler.sim.faults.registry import World, fault

JUMPS = (2.0, 30.0, 600.0, 7_200.0)
"""Seconds, to either side: a leap of NTP, a bad quartz, a wrong time zone."""
WINDOW_SECONDS = (5.0, 120.0)


@fault("clock-jump", once=True)
async def clock_jump(world: World, rng: random.Random) -> None:
    """The wall clock of the whole cluster jumps, and back after a while."""
    clock, jump = world.cluster.options.clock, _jump(rng)
    if not isinstance(clock, VirtualClock):
        return
    world.say(f"clock-jump: everybody's, by {jump.total_seconds():.0f} s")
    clock.jump += jump
    try:
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))
    finally:
        clock.jump -= jump


@fault("clock-skew", once=True)
async def clock_skew(world: World, rng: random.Random) -> None:
    """The wall clock of one machine is off for a while: that of a controller, or of a node with all that is on it."""
    replica, jump = rng.choice(world.cluster.replicas), _jump(rng)
    node = world.some_node(rng)
    on_node = rng.random() < 0.5
    clock = node.clock if on_node else replica.clock
    world.say(f"clock-skew: that of {node.name if on_node else replica.identity}, by {jump.total_seconds():.0f} s")
    clock.off += jump
    try:
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))
    finally:
        clock.off -= jump


def _jump(rng: random.Random) -> timedelta:
    return timedelta(seconds=rng.choice(JUMPS) * rng.uniform(0.5, 1.5) * rng.choice((-1, 1)))
