"""Faults of watches: what a client of ours sees of each, and that it is over then."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.resources import NODES, PODS
from reconciler.kube.transport import TransportError
from reconciler.sim.link import Link
from tests.unit.sim.bench import Bench, drive, seed_that_says

PATH = "/api/v1/nodes"
AGENT = "agent:node-1"


class Watch:
    """One watch of nodes, from now on; `pieces` are what has come, with the time of each."""

    def __init__(self, bench: Bench, link: Link | None = None, path: str = PATH, **query: str) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self._bench = bench
        self._link = link or bench.cluster.connect(AGENT)
        version = str(bench.cluster.server.store.version)
        self._query = {"resourceVersion": version, "allowWatchBookmarks": "true", **query}
        self.path = path
        self.status = 0
        self.task = bench.cluster.spawn(self._follow())

    async def _follow(self) -> str:
        try:
            async with self._link.stream(self.path, query=self._query, timeout=5) as stream:
                self.status = stream.status
                async for piece in stream:
                    self.pieces.append((self._bench.now, piece))
        except TransportError:
            return "broken"
        return "ended"

    @property
    def bytes(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def types(self) -> list[str]:
        return [json.loads(line)["type"] for line in self.bytes.splitlines()]


async def label(bench: Bench) -> float:
    """A change of node-1; the time."""
    await bench.label(x=f"{bench.now:.2f}")
    return bench.now


@pytest.mark.parametrize(("name", "in_stream"), [("expired-status", False), ("expired-stream", True)])
def test_history_is_compacted_and_answered_with_410_by_the_road_of_the_fault(
    tmp_path: Path, name: str, in_stream: bool
) -> None:
    async def main(bench: Bench) -> None:
        open_one, old = Watch(bench), str(bench.cluster.server.store.version)
        await label(bench)
        fault = bench.begin(name)
        await asyncio.sleep(0.1)
        assert await open_one.task == "ended"
        late = Watch(bench, resourceVersion=old)
        assert await late.task == "ended"
        assert late.status == (200 if in_stream else 410)
        answer = json.loads(late.bytes)
        assert (answer["object"] if in_stream else answer)["code"] == 410
        fresh = Watch(bench)
        await asyncio.sleep(1)
        assert not fresh.task.done()
        await fault

    drive(tmp_path, main, controllers=1)


def test_torn_watches_end_within_an_event_once_each(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        ends = set()
        for seed in range(12):
            said = len(bench.said)
            fault = bench.begin("watch-torn", seed)
            await asyncio.sleep(0)
            torn = Watch(bench)
            await label(bench)
            await asyncio.sleep(0.1)
            if any(AGENT in line and PATH in line for line in bench.said[said:]):
                ends.add(await torn.task)
                assert torn.bytes == b"" or not torn.bytes.endswith(b"\n")
                again = Watch(bench)
                await label(bench)
                await asyncio.sleep(0.1)
                assert again.types() == ["MODIFIED"]
                again.task.cancel()
            torn.task.cancel()
            fault.cancel()
            await asyncio.wait({fault})
        assert ends == {"ended", "broken"}

    drive(tmp_path, main, controllers=1)


def test_pieces_are_small_and_the_same_bytes(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        seed = await seed_that_says(bench, "watch-pieces", "all of ours receives 16 bytes")
        fault = bench.begin("watch-pieces", seed)
        hit, other = Watch(bench), Watch(bench, bench.cluster.connect("admin"))
        await label(bench)
        await asyncio.sleep(0.1)
        assert max(len(piece) for _, piece in hit.pieces) == 16
        assert hit.bytes == other.bytes
        await fault
        hit.pieces.clear()
        await label(bench)
        await asyncio.sleep(0.1)
        assert len(hit.pieces) == 1

    drive(tmp_path, main, controllers=1)


def test_a_silent_watch_brings_nothing_and_does_not_end_and_a_new_one_is_well(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        silent = Watch(bench, bench.node.agent_link)
        await asyncio.sleep(1)
        await bench.cause("watch-silent", await seed_that_says(bench, "watch-silent", "all of ours"))
        silent.pieces.clear()
        fresh = Watch(bench, bench.node.agent_link)
        await asyncio.sleep(200)
        bench.cluster.server.break_watches()
        await asyncio.sleep(1)
        assert not silent.task.done()
        assert silent.pieces == []
        assert "BOOKMARK" in fresh.types()

    drive(tmp_path, main, controllers=1)


def test_an_informer_finds_out_that_its_watch_is_silent(tmp_path: Path) -> None:
    """70 s: a bookmark comes every minute."""

    async def main(bench: Bench) -> None:
        client = Client(bench.node.agent_link)
        informer = Informer(client, NODES, clock=bench.node.clock, rng=bench.node.rng)
        bench.cluster.spawn(informer.run())
        await asyncio.sleep(1)
        await bench.cause("watch-silent", await seed_that_says(bench, "watch-silent", "all of ours"))
        await label(bench)
        begun = bench.now
        await bench.until(lambda: "x" in informer.store.list()[0].metadata.labels, 200)
        assert 69 < bench.now - begun < 72

    drive(tmp_path, main, controllers=1)


def test_a_lagging_watch_is_late_by_the_seconds_that_are_said(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        seed = await seed_that_says(bench, "watch-lag", "all of ours sees")
        fault = bench.begin("watch-lag", seed)
        late, other = Watch(bench), Watch(bench, bench.cluster.connect("admin"))
        at = await label(bench)
        await asyncio.sleep(9)
        said = float(bench.said[-1].split()[-3])
        assert late.pieces[0][0] - at == pytest.approx(said, abs=0.06)
        assert other.pieces[0][0] == at
        await fault
        await asyncio.sleep(9)
        late.pieces.clear()
        at = await label(bench)
        await asyncio.sleep(0.1)
        assert late.pieces[0][0] == at

    drive(tmp_path, main, controllers=1)


def test_what_happened_first_may_be_seen_last(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        seed = await seed_that_says(bench, "watch-reorder", r"all of ours sees late:(?!.*pods).* nodes")
        fault = bench.begin("watch-reorder", seed)
        nodes, pods = Watch(bench), Watch(bench, path="/api/v1/pods")
        await label(bench)
        await bench.pod("p", "hang")
        await asyncio.sleep(9)
        assert pods.pieces[0][0] < nodes.pieces[0][0]
        await fault
        await asyncio.sleep(9)
        nodes.pieces.clear()
        at = await label(bench)
        await asyncio.sleep(0.1)
        assert nodes.pieces[0][0] == at

    drive(tmp_path, main, controllers=1)


def test_a_watch_that_was_stuck_brings_each_object_as_it_is_by_then(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        seed = await seed_that_says(bench, "watch-stuck", "all of ours is shown")
        stuck, other = Watch(bench), Watch(bench, bench.cluster.connect("admin"))
        await asyncio.sleep(0.1)
        fault = bench.begin("watch-stuck", seed)
        await asyncio.sleep(0)
        for _ in range(3):
            await label(bench)
            await asyncio.sleep(0.1)
        assert stuck.pieces == []
        assert other.types() == ["MODIFIED"] * 3
        last = other.bytes.splitlines()[-1]
        await fault
        assert stuck.bytes.splitlines() == [last]
        await label(bench)
        await asyncio.sleep(0.1)
        assert stuck.types() == ["MODIFIED"] * 2

    drive(tmp_path, main, controllers=1)


def test_bookmarks_are_missing_for_minutes(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("no-bookmarks", await seed_that_says(bench, "no-bookmarks", "all of ours"))
        quiet = Watch(bench)
        await asyncio.sleep(110)
        assert quiet.pieces == []
        await fault
        await asyncio.sleep(61)
        assert quiet.types() == ["BOOKMARK", "BOOKMARK"]

    drive(tmp_path, main, controllers=1)


def test_versions_leap_and_only_who_has_a_bookmark_of_them_goes_on_without_a_list(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        outcomes = set()
        for seed in range(8):
            begun, watch = bench.now, Watch(bench, path="/api/v1/configmaps")
            old = bench.cluster.server.store.version
            await asyncio.sleep(0.1)
            await bench.cause("bookmark-ahead", seed)
            assert bench.cluster.server.store.version >= old + 1_000
            assert await watch.task == "ended"
            marked = watch.types()[-1:] == ["BOOKMARK"]
            last = json.loads(watch.bytes.splitlines()[-1])["object"] if marked else {}
            version = last["metadata"]["resourceVersion"] if marked else str(old)
            again = Watch(bench, path="/api/v1/configmaps", resourceVersion=version)
            await asyncio.sleep(0.1)
            outcomes.add((bench.now - begun > 30, (*again.types(),)))
        assert outcomes == {(True, ()), (False, ("ERROR",))}

    drive(tmp_path, main, controllers=1)


def test_an_informer_holds_what_the_server_holds_after_all_of_them(tmp_path: Path) -> None:
    names = ("expired-status", "expired-stream", "watch-torn", "watch-pieces", "watch-lag", "watch-stuck", "list-pages")

    async def main(bench: Bench) -> None:
        client = Client(bench.cluster.connect(AGENT))
        informer = Informer(client, PODS, clock=bench.node.clock, rng=bench.node.rng)
        bench.cluster.spawn(informer.run())
        begun = [bench.begin(name, seed) for name in names for seed in range(2)]
        for number in range(60):
            await bench.pod(f"p{number}", "hang")
            await asyncio.sleep(1)
        await asyncio.wait(begun)
        await asyncio.sleep(60)
        truth = {pod.metadata.name for pod in (await bench.cluster.admin.list(PODS))[0]}
        assert {pod.metadata.name for pod in informer.store.list()} == truth
        assert len(truth) == 60

    drive(tmp_path, main, controllers=1)
