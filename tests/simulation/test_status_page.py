"""What a status page shows is what is so: followed as a browser does it, from the whole and then by its changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from reconciler.controller import statuspage
from reconciler.controller.feed import Feed
from reconciler.sim.cluster import Cluster
from reconciler.sim.loops import BINARY, RUNTIME, manifest, phase
from reconciler.sim.session import seen

Drive = Callable[..., None]

BEHIND = 3.0
"""Seconds that a page may be behind: a look a second, and the watch before it."""
POLL = 0.05


class Follower:
    """One open page. `told`: by node, what it shows of the one runtime."""

    def __init__(self, cluster: Cluster) -> None:
        self.head: dict[str, Any] = {}
        self.told: dict[str, dict[str, Any]] = {}
        self.stages: list[tuple[float, str, str]] = []
        """When which node was said to be in which stage."""
        self._feed = Feed(lambda: seen(cluster), clock=cluster.options.clock, rng=random.Random(1))
        cluster.spawn(self._follow())

    async def _follow(self) -> None:
        while True:
            whole = msgspec.json.decode((await self._feed.whole()).body)
            self.told.clear()
            self._take(whole, whole["nodes"], [])
            async for event in self._feed.stream(whole["version"]):
                fields = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
                if fields["event"] == "change":
                    change = msgspec.json.decode(fields["data"])
                    self._take(change, change["rows"], change["gone"])

    def _take(self, head: dict[str, Any], rows: list[dict[str, Any]], gone: list[list[str]]) -> None:
        self.head = {key: value for key, value in head.items() if key not in ("nodes", "rows", "gone")}
        for row in rows:
            self.told[row["node"]] = row
            self.stages.append((asyncio.get_running_loop().time(), row["node"], row["stage"]))
        for node, _ in gone:
            del self.told[node]

    def shows(self, field: str) -> dict[str, str]:
        return {node: row[field] for node, row in self.told.items()}


class Witness:
    """What was so, and when."""

    def __init__(self, scenario: Any) -> None:
        self._seen: dict[tuple[str, str], float] = {}
        """Node and stage: when it was last so."""
        self._scenario = scenario
        scenario.cluster.spawn(self._watch())

    async def _watch(self) -> None:
        while True:
            for node, stage in self._scenario.stages().items():
                self._seen[node, stage] = self._scenario.now
            await asyncio.sleep(POLL)

    def false_words(self, told: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
        return [(at, node, stage) for at, node, stage in told if self._seen.get((node, stage), -1.0) < at - BEHIND]


def slow(**rollout: Any) -> dict[str, Any]:
    """Each stage lasts long enough to be seen."""
    return manifest(
        bake=5,
        unavailable=2,
        install=phase("seconds=4", f"drop={BINARY}"),
        uninstall=phase("seconds=4", f"take={BINARY}"),
        **rollout,
    )


def test_a_page_that_stays_open_tells_every_stage_of_every_node_and_no_other(drive: Drive) -> None:
    async def main(s: Any) -> None:
        page, witness = Follower(s.cluster), Witness(s)
        await s.create(slow())
        await s.ready()
        await asyncio.sleep(BEHIND)
        assert page.shows("stage") == {f"node-{n}": "ready" for n in range(1, 5)}
        assert page.shows("verdict") == {f"node-{n}": "ok" for n in range(1, 5)}
        assert page.shows("barrier") == {f"node-{n}": "open" for n in range(1, 5)}
        [runtime] = page.head["runtimes"]
        assert {key: runtime[key] for key in ("name", "total", "ready", "stages")} == {
            "name": RUNTIME,
            "total": 4,
            "ready": 4,
            "stages": {"ready": 4},
        }
        await s.delete()
        await s.gone()
        await asyncio.sleep(BEHIND)
        assert (page.told, page.head["runtimes"]) == ({}, [])
        assert witness.false_words(page.stages) == []
        told = {(node, stage) for _, node, stage in page.stages}
        assert {(f"node-{n}", stage) for n in range(1, 5) for stage in ("install", "verify", "uninstall")} <= told

    drive(main, nodes=4)


def test_a_node_that_was_given_up_on_is_told_with_the_reason_and_what_to_do(drive: Drive) -> None:
    async def main(s: Any) -> None:
        page = Follower(s.cluster)
        await s.create(manifest(install={**phase("hang"), "timeoutSeconds": 20}))
        await s.until(lambda: "failed" in page.shows("verdict").values())
        [row] = [row for row in page.told.values() if row["verdict"] == "failed"]
        assert row["error"]["reason"] == "PayloadTimedOut"
        assert row["advice"] != ""
        await asyncio.sleep(BEHIND)
        [runtime] = page.head["runtimes"]
        assert (runtime["failed"], runtime["problem"]["reason"]) == (1, "NodesFailed")
        assert "rollout.errorBudget" in runtime["halted"]

    drive(main)


def test_a_standby_tells_the_same_and_that_it_does_not_lead(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(slow())
        await s.ready()
        await asyncio.sleep(BEHIND)
        views = {}
        for replica in s.cluster.replicas:
            who, overview = await statuspage.seen_by(replica.controller)
            assert who.synced
            views[who.leads] = [(r.node, r.runtime, r.stage, r.verdict, r.barrier, r.since) for r in overview.nodes]
        assert views[True] == views[False]
        assert len(views[True]) == 2

    drive(main, controllers=2)


def test_a_page_outlives_the_leader(drive: Drive) -> None:
    async def main(s: Any) -> None:
        page = Follower(s.cluster)
        await s.create(slow())
        await s.until(lambda: "install" in page.shows("stage").values())
        before = page.head["controller"]
        assert before["leads"]
        s.cluster.leader.kill()
        await s.until(lambda: not page.head["controller"]["leads"])
        await s.until(lambda: page.head["controller"]["leads"])
        assert page.head["controller"]["identity"] != before["identity"]
        await s.ready()
        await asyncio.sleep(BEHIND)
        assert page.shows("stage") == s.stages()

    drive(main, controllers=2)


def test_a_node_that_is_not_selected_any_more_before_its_turn_is_not_counted_any_more(drive: Drive) -> None:
    async def main(s: Any) -> None:
        page = Follower(s.cluster)
        for node in s.cluster.nodes:
            await s.mark(node, pool="sandboxed")
        body = slow()
        body["spec"]["paused"] = True
        body["spec"]["nodeSelector"] = {"matchLabels": {"pool": "sandboxed"}}
        await s.create(body)
        await s.until(lambda: s.status().get("nodes", {}).get("total") == 2 and len(page.told) == 2)
        await s.mark("node-2", pool=None)
        await s.until(lambda: s.status()["nodes"]["total"] == 1 and list(page.told) == ["node-1"])

    drive(main)
