"""Whatever goes wrong on the way, the informer's store ends equal to the server's collection."""

import asyncio
import random

import pytest

from reconciler.api.meta import Node
from reconciler.kube.client import Client
from reconciler.kube.errors import ApiError
from reconciler.kube.informer import Informer
from reconciler.kube.resources import NODES
from reconciler.sim.clock import VirtualClock, run
from reconciler.sim.link import Link
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

CHANGES = 300


async def change(client: Client, informer: Informer[Node], rng: random.Random) -> None:
    """One write; its answer goes into the store at once, as the controller does it, or a little late."""
    name = f"n{rng.randrange(8)}"
    try:
        match rng.randrange(3):
            case 0:
                written = await client.create(NODES, {"metadata": {"name": name}})
            case 1:
                patch = {"metadata": {"labels": {"x": str(rng.random())}}}
                written = await client.patch(NODES, name, patch)
            case _:
                await client.delete(NODES, name)
                return
    except ApiError:
        return  # not there, or there already
    await asyncio.sleep(rng.choice((0.0, 0.0, 0.3)))
    informer.store.apply_write(written)


@pytest.mark.parametrize("seed", range(12))
def test_the_store_ends_equal_to_the_collection(seed: int) -> None:
    async def main() -> None:
        rng, clock = random.Random(seed), VirtualClock()
        server = ApiServer(clock=clock, rng=rng, history=20)
        writer = Client(MemoryTransport(server, user="writer"), rng=rng)
        link = Link(MemoryTransport(server, user="watcher"))
        informer = Informer(Client(link, rng=rng), NODES, clock=clock, rng=rng)
        known: dict[str, str] = {}

        def follow(kind: str, old: Node | None, new: Node | None, initial: bool) -> None:
            node = new or old or Node()
            known.pop(node.metadata.name, None)
            if kind != "deleted":
                known[node.metadata.name] = node.metadata.uid

        informer.add_handler(follow)
        running = asyncio.ensure_future(informer.run())
        async with asyncio.TaskGroup() as writes:
            for _ in range(CHANGES):
                writes.create_task(change(writer, informer, rng))
                await asyncio.sleep(rng.random())
                if rng.random() < 0.05:
                    link.cut = not link.cut
                if rng.random() < 0.05:
                    server.break_watches()
        link.cut = False
        await asyncio.sleep(240)
        truth = {n.metadata.name: n.metadata.resource_version for n in (await writer.list(NODES))[0]}
        held = {n.metadata.name: n.metadata.resource_version for n in informer.store.list()}
        uids = {n.metadata.name: n.metadata.uid for n in informer.store.list()}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert held == truth
        assert known == uids

    run(main())
