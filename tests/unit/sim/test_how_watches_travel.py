"""A watch on its way to the client: late, in pieces, torn, silent, without bookmarks."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from reconciler.kube.client import Client
from reconciler.kube.resources import NODES
from reconciler.kube.transport import TransportError
from reconciler.sim import clock
from reconciler.sim.failures import ApiFailure
from reconciler.sim.flow import Flow
from reconciler.sim.link import Link
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer, Trouble


class Bench:
    """A server, a client that writes, and a link on which somebody watches nodes."""

    def __init__(self) -> None:
        self.server = ApiServer(clock=clock.VirtualClock(), rng=random.Random(1))
        self.admin = Client(MemoryTransport(self.server, user="admin"))
        self.link = Link(MemoryTransport(self.server, user="agent:node-1"))
        self.seen: list[tuple[float, bytes]] = []

    async def node(self, name: str) -> None:
        await self.admin.create(NODES, {"metadata": {"name": name}})

    async def follow(self, **query: str) -> None:
        """Notes every piece until the watch ends. Raises TransportError when it breaks."""
        async with self.link.stream("/api/v1/nodes", query={"resourceVersion": "1", **query}, timeout=5) as stream:
            async for piece in stream:
                self.seen.append((asyncio.get_running_loop().time(), piece))

    @staticmethod
    def names(piece: bytes) -> list[str]:
        return [json.loads(line)["object"]["metadata"]["name"] for line in piece.splitlines()]

    @property
    def bytes(self) -> bytes:
        return b"".join(piece for _, piece in self.seen)


def play(main: Callable[[Bench], Any]) -> None:
    async def body() -> None:
        await main(Bench())

    clock.run(body())


def flowing(b: Bench, flow: Flow) -> Any:
    return b.server.knobs.flowing(lambda request: flow if request.user == "agent:node-1" else None)


async def watching(b: Bench, seconds: float, **query: str) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.ensure_future(b.follow(**query))
    await asyncio.sleep(seconds)
    yield task
    task.cancel()


def test_a_lagging_watch_brings_everything_late_and_in_order() -> None:
    async def main(b: Bench) -> None:
        async for _ in watching(b, 1.0):
            with flowing(b, Flow(lag=3.0)):
                await b.node("a")
                await asyncio.sleep(1.0)
                await b.node("b")
                await asyncio.sleep(10.0)
            await b.node("c")
            await asyncio.sleep(0.1)
        assert [round(at, 1) for at, _ in b.seen] == [4.0, 7.0, 12.0]
        assert [b.names(piece) for _, piece in b.seen] == [["a"], ["b"], ["c"]]

    play(main)


def test_small_pieces_are_the_same_bytes() -> None:
    async def main(b: Bench) -> None:
        await b.node("a")
        async for _ in watching(b, 1.0):
            pass
        whole, b.seen = b.bytes, []
        with flowing(b, Flow(piece=7)):
            async for _ in watching(b, 1.0):
                pass
        assert b.bytes == whole
        assert {len(piece) for _, piece in b.seen[:-1]} == {7}

    play(main)


@pytest.mark.parametrize("polite", [False, True])
def test_a_torn_watch_ends_in_the_middle_of_a_line(polite: bool) -> None:
    async def main(b: Bench) -> None:
        await b.node("a")
        with flowing(b, Flow(torn=0.5, polite=polite)):
            (failed,) = await asyncio.gather(b.follow(), return_exceptions=True)
        assert isinstance(failed, TransportError) is not polite
        assert b.bytes.startswith(b'{"type":"ADDED"')
        assert not b.bytes.endswith(b"\n")

    play(main)


def test_bookmarks_may_be_missing_and_events_are_not() -> None:
    async def main(b: Bench) -> None:
        with flowing(b, Flow(bookmarks=False)):
            async for _ in watching(b, 100.0, allowWatchBookmarks="true"):
                await b.node("a")
                await asyncio.sleep(100.0)
        assert b.bytes.count(b'"type":"BOOKMARK"') == 0
        assert b.bytes.count(b'"type":"ADDED"') == 1
        async for _ in watching(b, 100.0, allowWatchBookmarks="true"):
            pass
        assert b.bytes.count(b'"type":"BOOKMARK"') == 3

    play(main)


def test_a_connection_that_lost_bytes_brings_nothing_more_when_the_network_is_back() -> None:
    """Else an event would be missing in the middle of a stream, which TCP does not allow."""

    async def main(b: Bench) -> None:
        async for task in watching(b, 1.0):
            b.link.unplug()
            await b.node("lost")
            await asyncio.sleep(1.0)
            b.link.plug()
            await b.node("later")
            await asyncio.sleep(1.0)
            b.server.break_watches()
            await asyncio.sleep(1.0)
            assert not task.done()
            assert b.seen == []

    play(main)


def test_a_network_that_two_took_away_is_back_when_both_are_done() -> None:
    async def main(b: Bench) -> None:
        b.link.unplug()
        b.link.unplug()
        b.link.plug()
        with pytest.raises(TransportError):
            await b.link.request("GET", "/api/v1/nodes")
        b.link.plug()
        assert (await b.link.request("GET", "/api/v1/nodes")).status == 200

    play(main)


def test_a_failure_in_the_stream_is_an_event_of_a_good_answer() -> None:
    async def main(b: Bench) -> None:
        trouble = Trouble(failure=ApiFailure(500, "InternalError", "etcd"), in_stream=True)
        with b.server.knobs.troubled(lambda request: trouble if request.is_watch else None):
            await b.follow()
        assert b.bytes.startswith(b'{"type":"ERROR"')
        assert b'"code":500' in b.bytes

    play(main)


def test_an_answer_may_be_older_than_it_seems() -> None:
    async def main(b: Bench) -> None:
        with b.server.knobs.troubled(lambda request: Trouble(delay_after=5.0) if "agent" in request.user else None):
            asking = asyncio.ensure_future(b.link.request("GET", "/api/v1/nodes"))
            await asyncio.sleep(1.0)
            await b.node("a")
            answer = await asking
        assert asyncio.get_running_loop().time() == 5.0
        assert b'"items":[]' in answer.body

    play(main)


def test_a_list_comes_in_smaller_pages_than_were_asked_for() -> None:
    async def main(b: Bench) -> None:
        for name in "abc":
            await b.node(name)
        with b.server.knobs.troubled(lambda request: Trouble(page=2)):
            listed, _ = await b.admin.list(NODES)
        assert [node.metadata.name for node in listed] == ["a", "b", "c"]
        assert [a.method for a in b.server.audit] == ["POST", "POST", "POST", "GET", "GET"]

    play(main)
