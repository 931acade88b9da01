"""The HTTP front end: the project's own light transport and informer work against it."""

from __future__ import annotations

import asyncio
import random

from reconciler.api.clock import SystemClock
from reconciler.kube import light
from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.resources import NODES
from reconciler.sim import http
from reconciler.sim.server import ApiServer


async def test_an_informer_follows_the_server_over_http() -> None:
    server = ApiServer(clock=SystemClock(), rng=random.Random(1))
    async with http.serve(server) as url:
        client = Client(light.LightTransport(url))
        await client.create(NODES, {"metadata": {"name": "a"}})
        nodes = Informer(client, NODES, clock=SystemClock(), rng=random.Random(1))
        seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        nodes.add_handler(lambda kind, old, new, initial: seen.put_nowait((kind, (new or old).metadata.name)))
        running = asyncio.ensure_future(nodes.run())
        assert await seen.get() == ("added", "a")
        await client.create(NODES, {"metadata": {"name": "b"}})
        assert await seen.get() == ("added", "b")
        await client.delete(NODES, "a")
        assert await seen.get() == ("deleted", "a")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
