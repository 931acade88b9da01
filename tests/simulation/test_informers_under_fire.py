"""Ten runs of `make fire` against the embedded server: the informers come out of the fire with what the server has."""

from __future__ import annotations

import asyncio
import random

from reconciler.sim import http
from reconciler.sim.server import ApiServer
from tests.fire import clock, leaks, trial

SPEED = 20.0
RUNS = 10


def test_informers_come_out_of_the_fire_equal_to_the_server() -> None:
    async def main() -> None:
        await leaks.one_thread()
        before = leaks.census()
        server = ApiServer(clock=clock.LoopClock(), rng=random.Random(1))

        async def compact(version: int) -> None:
            server.knobs.expired_in_stream = not server.knobs.expired_in_stream
            server.store.compact()

        async with http.serve(server) as url:
            await asyncio.gather(*(trial.run(trial.World(url, compact), seed) for seed in range(RUNS)))
        assert await leaks.settled(before, 40.0) == before

    clock.run(main(), speed=SPEED)
