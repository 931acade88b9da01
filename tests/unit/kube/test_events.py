"""Events: written in the background, counted up when repeated, never in the way."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from reconciler.kube.client import Client
from reconciler.kube.events import QUEUE_MAX, Recorder
from reconciler.kube.resources import EVENTS
from reconciler.kube.transport import Response
from reconciler.sim.clock import VirtualClock, run
from reconciler.sim.link import Link
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

KATA = {"apiVersion": "runtime-reconciler.io/v1alpha1", "kind": "NodeRuntime", "name": "kata", "uid": "u"}


class Noting(Link):
    """Remembers what was sent."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(MemoryTransport(server, user="test"))
        self.sent: list[tuple[str, Any]] = []

    async def request(self, method: str, path: str, **rest: Any) -> Response:
        if rest.get("body") is not None:
            self.sent.append((method, msgspec.json.decode(rest["body"])))
        return await super().request(method, path, **rest)


def recorded(body: Callable[[Recorder, Noting, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        link = Noting(ApiServer(clock=clock, rng=random.Random(1)))
        client = Client(link, rng=random.Random(1))
        recorder = Recorder(client, "controller", clock)
        running = asyncio.ensure_future(recorder.run())
        await body(recorder, link, client)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main())


def stuck(recorder: Recorder) -> None:
    recorder.event(KATA, "Warning", "Stuck", "node n1 in install", "Reconcile")


def test_an_event_of_a_cluster_scoped_object_lands_in_default() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        stuck(recorder)
        await asyncio.sleep(1)
        method, sent = link.sent[0]
        assert method == "POST"
        assert sent["metadata"]["namespace"] == "default"
        assert sent["regarding"] == KATA
        assert sent["eventTime"] == "2026-01-01T00:00:00.000000Z"
        assert sent["reportingController"] == "runtime-reconciler.io/controller"
        assert (sent["type"], sent["reason"], sent["note"]) == ("Warning", "Stuck", "node n1 in install")
        assert len((await client.list(EVENTS, "default"))[0]) == 1

    recorded(body)


def test_repeats_are_counted_up_at_most_once_a_minute() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        for _ in range(120):
            stuck(recorder)
            await asyncio.sleep(1)
        counts = [sent["series"]["count"] for method, sent in link.sent if method == "PATCH"]
        assert counts == [2, 62]
        assert len((await client.list(EVENTS, "default"))[0]) == 1

    recorded(body)


def test_after_ten_quiet_minutes_it_is_a_new_event() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        stuck(recorder)
        await asyncio.sleep(601)
        stuck(recorder)
        await asyncio.sleep(1)
        assert [method for method, _ in link.sent] == ["POST", "POST"]

    recorded(body)


def test_a_series_whose_event_has_expired_begins_anew() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        stuck(recorder)
        await asyncio.sleep(1)
        (event,) = (await client.list(EVENTS, "default"))[0]
        await client.delete(EVENTS, event.metadata.name, "default")
        link.sent.clear()
        stuck(recorder)
        await asyncio.sleep(1)
        assert [method for method, _ in link.sent] == ["PATCH", "POST"]

    recorded(body)


def test_events_that_cannot_be_written_are_lost_and_later_ones_are_not() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        link.cut = True
        stuck(recorder)
        await asyncio.sleep(60)
        link.cut = False
        recorder.event(KATA, "Normal", "Ready", "node n1", "Reconcile")
        await asyncio.sleep(1)
        assert len((await client.list(EVENTS, "default"))[0]) == 1

    recorded(body)


def test_a_flood_neither_blocks_nor_raises() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        for number in range(QUEUE_MAX * 2):
            recorder.event(KATA, "Normal", "Ready", f"node {number}", "Reconcile")
        await asyncio.sleep(60)
        assert len((await client.list(EVENTS, "default"))[0]) == QUEUE_MAX

    recorded(body)


def test_long_names_and_notes_are_cut_to_what_the_server_takes() -> None:
    async def body(recorder: Recorder, link: Noting, client: Client) -> None:
        recorder.event({**KATA, "name": "n" * 253}, "Normal", "Ready", "x" * 5000, "Reconcile")
        await asyncio.sleep(1)
        sent = link.sent[0][1]
        assert len(sent["metadata"]["name"]) <= 253
        assert len(sent["note"]) == 1024

    recorded(body)
