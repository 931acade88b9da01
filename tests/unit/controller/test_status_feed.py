"""The feed of the status page: one look for all, changes in order, and who fell behind loads the whole."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from reconciler.api.overview import NodeRow, Overview, RuntimeRow, Stopped, Verdict
from reconciler.controller import feed as module
from reconciler.controller.feed import Feed, Full, Replica
from reconciler.sim import clock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(node: str, stage: str = "ready", verdict: Verdict = Verdict.OK) -> NodeRow:
    return NodeRow(runtime="kata", node=node, stage=stage, verdict=verdict, reason="", awaits="")


class Source:
    """What there is to see; counts how often somebody looked."""

    def __init__(self, *rows: NodeRow) -> None:
        self.rows = rows
        self.stopped: Stopped | None = None
        self.looks = 0

    async def look(self) -> tuple[Replica, Overview]:
        self.looks += 1
        seen = Overview(time=NOON, stopped=self.stopped, runtimes=(RuntimeRow(name="kata"),), nodes=self.rows)
        return Replica(identity="one", leads=True, synced=True), seen


def virtual(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    clock.run(main())


def feed(source: Source, seed: int = 1) -> Feed:
    return Feed(source.look, clock=clock.VirtualClock(), rng=random.Random(seed))


def parsed(event: bytes) -> tuple[str, Any]:
    """Kind and data of a server-sent event."""
    assert event.endswith(b"\n\n")
    fields = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return fields["event"], msgspec.json.decode(fields["data"])


async def kinds(stream: AsyncGenerator[bytes, None]) -> list[str]:
    """Of a stream that ends by itself."""
    async with asyncio.timeout(30):
        return [parsed(event)[0] async for event in stream]


async def following(stream: AsyncGenerator[bytes, None], kind: str) -> Any:
    """Data of the next event of `kind`."""
    async with asyncio.timeout(30):
        async for event in stream:
            found, data = parsed(event)
            if found == kind:
                return data
    raise AssertionError(f"no {kind}")


def test_the_whole_is_the_read_model_with_a_version_and_who_answers() -> None:
    async def main() -> None:
        whole = msgspec.json.decode((await feed(Source(row("a"))).whole()).body)
        assert whole["controller"] == {"identity": "one", "leads": True, "synced": True}
        assert (whole["time"], whole["stopped"]) == ("2026-01-01T12:00:00Z", None)
        assert [r["name"] for r in whole["runtimes"]] == ["kata"]
        assert [(r["node"], r["stage"], r["verdict"]) for r in whole["nodes"]] == [("a", "ready", "ok")]

    virtual(main)


def test_the_version_changes_with_what_is_seen_and_only_then() -> None:
    async def main() -> None:
        source = Source(row("a"))
        it = feed(source)
        first = (await it.whole()).version
        await asyncio.sleep(2)
        assert (await it.whole()).version == first
        source.stopped = Stopped(reason="outage")
        await asyncio.sleep(2)
        assert (await it.whole()).version != first

    virtual(main)


def test_a_change_tells_the_rows_that_differ_and_those_that_went() -> None:
    async def main() -> None:
        source = Source(row("a"), row("b"), row("c"))
        it = feed(source)
        stream = it.stream((await it.whole()).version)
        source.rows = (row("a"), row("b", "install", Verdict.STUCK))
        change = await following(stream, "change")
        assert [(r["node"], r["stage"], r["verdict"]) for r in change["rows"]] == [("b", "install", "stuck")]
        assert change["gone"] == [["c", "kata"]]
        assert change["version"] == (await it.whole()).version
        await stream.aclose()

    virtual(main)


def test_changes_while_a_page_was_away_are_told_from_its_version_on() -> None:
    async def main() -> None:
        source = Source(row("a"))
        it = feed(source)
        before = (await it.whole()).version
        for stage in ("install", "configure"):
            source.rows = (row("a", stage),)
            await asyncio.sleep(2)
            await it.whole()
        stream = it.stream(before)
        stages = [(await following(stream, "change"))["rows"][0]["stage"] for _ in range(2)]
        assert stages == ["install", "configure"]
        await stream.aclose()

    virtual(main)


@pytest.mark.parametrize("since", ["", "nonsense", "00000000-1", "22222222-99"])
def test_a_version_that_is_not_known_is_told_to_load_the_whole(since: str) -> None:
    async def main() -> None:
        stream = feed(Source(row("a"))).stream(since)
        told = await kinds(stream)
        assert told == ["beat", "reload"]

    virtual(main)


def test_a_version_of_another_process_is_not_ours() -> None:
    async def main() -> None:
        other = (await feed(Source(row("a")), seed=2).whole()).version
        told = await kinds(feed(Source(row("a"))).stream(other))
        assert told == ["beat", "reload"]

    virtual(main)


def test_who_falls_behind_the_ring_is_told_to_load_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_MAX", 3)

    async def main() -> None:
        source = Source(row("a"))
        it = feed(source)
        before = (await it.whole()).version
        for stage in ("install", "configure", "verify"):
            source.rows = (row("a", stage),)
            await asyncio.sleep(2)
            await it.whole()
        assert await kinds(it.stream(before)) == ["beat", "reload"]

    virtual(main)


def test_a_change_of_almost_everything_is_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_MAX", 3)

    async def main() -> None:
        source = Source(*(row(f"n{i}") for i in range(5)))
        it = feed(source)
        stream = it.stream((await it.whole()).version)
        source.rows = tuple(row(f"n{i}", "install") for i in range(5))
        assert await following(stream, "reload") == {}

    virtual(main)


def test_a_silent_stream_beats_with_the_controllers_time() -> None:
    async def main() -> None:
        it = feed(Source(row("a")))
        stream = it.stream((await it.whole()).version)
        assert (await following(stream, "beat"))["time"] == "2026-01-01T00:00:00Z"
        begun = asyncio.get_running_loop().time()
        await following(stream, "beat")
        assert 5 <= asyncio.get_running_loop().time() - begun <= 6
        await stream.aclose()

    virtual(main)


def test_many_pages_share_one_look_and_nobody_looks_for_nobody() -> None:
    async def main() -> None:
        source = Source(row("a"))
        it = feed(source)
        await asyncio.sleep(60)
        assert source.looks == 0
        version = (await it.whole()).version
        streams = [it.stream(version) for _ in range(10)]

        async def follow(stream: AsyncGenerator[bytes, None]) -> None:
            async for _ in stream:
                pass

        following = [asyncio.ensure_future(follow(stream)) for stream in streams]
        await asyncio.sleep(20)
        for task in following:
            task.cancel()
        await asyncio.wait(following)
        assert 19 <= source.looks <= 22
        assert it.clients == 0
        looks = source.looks
        await asyncio.sleep(60)
        assert source.looks == looks

    virtual(main)


def test_a_look_that_takes_long_is_taken_less_often() -> None:
    async def main() -> None:
        source = Source(row("a"))

        async def slow() -> tuple[Replica, Overview]:
            await asyncio.sleep(0.5)
            return await source.look()

        it = Feed(slow, clock=clock.VirtualClock(), rng=random.Random(1))
        for _ in range(105):
            await it.whole()
            await asyncio.sleep(1)
        assert source.looks == 11  # in 110 s: half a second is five in a hundred of the ten until the next one

    virtual(main)


def test_no_more_streams_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLIENTS_MAX", 2)

    async def main() -> None:
        it = feed(Source(row("a")))
        early = [it.stream(""), it.stream(""), it.stream("")]
        begun = [await anext(stream, None) for stream in early]
        assert [event is not None for event in begun] == [True, True, False]
        with pytest.raises(Full):
            it.stream("")
        await early[0].aclose()
        late = it.stream("")
        assert await anext(late) is not None
        for stream in (early[1], late):
            await stream.aclose()

    virtual(main)
