"""Runs against the embedded server, over HTTP in the same process."""

from __future__ import annotations

import asyncio
import random

from reconciler.sim import http
from reconciler.sim.server import ApiServer
from tests.fire import clock, leaks, trial

SPEED = 20.0
CLOSED_WITHIN = 40.0
"""Seconds of the loop until nothing may be open any more."""


def run(seeds: range) -> None:
    """All at once. Raises trial.Failed, or AssertionError when something is left behind."""
    clock.run(_run(seeds), speed=SPEED)


async def _run(seeds: range) -> None:
    await leaks.one_thread()
    before = leaks.census()
    server = ApiServer(clock=clock.LoopClock(), rng=random.Random(1))

    async def compact(version: int) -> None:
        server.knobs.expired_in_stream = not server.knobs.expired_in_stream
        server.store.compact()

    async with http.serve(server) as url:
        await asyncio.gather(*(trial.run(trial.World(url, compact), seed) for seed in seeds))
    after = await leaks.settled(before, CLOSED_WITHIN)
    assert after == before, f"{after}, before it was {before}"
