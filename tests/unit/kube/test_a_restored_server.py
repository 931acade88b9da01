"""An informer finds out that the server's store was put back to a backup, whose versions are lower than its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.resources import NODES
from reconciler.kube.transport import ByteStream, Response
from reconciler.sim import clock
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer


class Switch:
    """A transport to whichever server is there now."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def request(self, method: str, path: str, **options: Any) -> Response:
        return await MemoryTransport(self.server, user="admin").request(method, path, **options)

    @asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None, timeout: float) -> AsyncIterator[Any]:
        inner = MemoryTransport(self.server, user="admin")
        async with inner.stream(path, query=query, timeout=timeout) as stream:
            found: ByteStream = stream
            yield found

    async def close(self) -> None:
        """Nothing is held open."""


def server(version: int) -> ApiServer:
    """One that gives the same UIDs as any other that this makes."""
    made = ApiServer(clock=clock.VirtualClock(), rng=random.Random(1))
    made.store.version = version
    return made


def test_the_store_equals_a_server_that_was_put_back_to_a_backup() -> None:
    async def main() -> None:
        switch = Switch(server(5000))
        client = Client(switch)
        await client.create(NODES, {"metadata": {"name": "a", "labels": {"is": "new"}}})
        await client.create(NODES, {"metadata": {"name": "b"}})
        nodes = Informer(client, NODES, clock=clock.VirtualClock(), rng=random.Random(2))
        running = asyncio.ensure_future(nodes.run())
        await nodes.synced.wait()
        lost, switch.server = switch.server, server(100)
        await client.create(NODES, {"metadata": {"name": "a", "labels": {"is": "old"}}})
        lost.break_watches()
        await asyncio.sleep(80)
        assert [(node.metadata.name, node.metadata.labels) for node in nodes.store.list()] == [("a", {"is": "old"})]
        await client.create(NODES, {"metadata": {"name": "c"}})
        await asyncio.sleep(1)
        assert sorted(node.metadata.name for node in nodes.store.list()) == ["a", "c"]
        running.cancel()
        await asyncio.wait({running})

    clock.run(main())
