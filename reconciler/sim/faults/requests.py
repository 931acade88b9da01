"""What befalls single requests of ours to the API server."""

from __future__ import annotations

import asyncio
import random

from reconciler.sim.failures import ApiFailure
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

WINDOW_SECONDS = (2.0, 10.0)
ODDS = 0.05
"""Of each request in a window that it is troubled."""
TROUBLES = (
    Trouble(failure=ApiFailure(503, "ServiceUnavailable", "the server is overloaded")),
    Trouble(failure=ApiFailure(429, "TooManyRequests", "too many requests", retry_after=1)),
    Trouble(failure=ApiFailure(500, "InternalError", "etcdserver: leader changed")),
    Trouble(drop_before=True),
    Trouble(drop_after=True),
    Trouble(delay=0.5),
)


@fault("api")
async def api(world: World, rng: random.Random) -> None:
    """Some requests get an error, or no answer before or after they were done."""

    def trouble(request: Request) -> Trouble | None:
        if not request.user.startswith(("controller", "agent")) or rng.random() >= ODDS:
            return None
        chosen = rng.choice(TROUBLES)
        world.say(f"api: {request.method} {request.path} of {request.user}: {chosen}")
        return chosen

    with world.cluster.server.knobs.troubled(trouble):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))
