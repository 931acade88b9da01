"""Faults of requests, of the Lease and of the network: what a client of ours sees of each, and that it is over then."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from reconciler.kube.transport import TransportError
from reconciler.sim import kinds
from reconciler.sim.link import Link
from tests.unit.sim.bench import Bench, drive, seed_that_says

NODES = "/api/v1/nodes"
NODE = f"{NODES}/node-1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/controller"
PACE = 0.05
TIMEOUT = 2.0
MARKS = itertools.count(1)
OURS = ("controller:controller-1", "agent:node-1")


class Probe:
    """Writes with every request, so that what was done can be told from what was answered."""

    def __init__(self, bench: Bench, user: str, link: Link | None = None) -> None:
        self._link = link or bench.cluster.connect(user)
        self._bench = bench
        self.sent = 0

    async def write(self) -> str:
        """`STATUS`, `reset` or `timeout`, then whether it was done."""
        self.sent += 1
        mark = str(next(MARKS))
        body = b'{"metadata": {"labels": {"probe": "%s"}}}' % mark.encode()
        answer = await self.ask("PATCH", NODE, body)
        done = self._bench.of_node()["metadata"].get("labels", {}).get("probe") == mark
        return f"{answer} {'done' if done else 'not done'}"

    async def ask(self, method: str, path: str, body: bytes | None = None, **query: str) -> str:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        begun = self._bench.now
        try:
            response = await self._link.request(
                method, path, body=body, query=query, content_type=kind, timeout=TIMEOUT
            )
        except TransportError:
            return "timeout" if self._bench.now - begun >= TIMEOUT else "reset"
        return str(response.status)


async def seen(bench: Bench, name: str, seed: int, probes: list[Probe]) -> Counter[str]:
    """What became of the writes while the fault lasted."""
    found: Counter[str] = Counter()
    fault = bench.begin(name, seed)
    await asyncio.sleep(0)
    while not fault.done():
        for probe in probes:
            found[await probe.write()] += 1
        await asyncio.sleep(PACE)
    return found


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("api-429", "429 not done"),
        ("api-500", "500 not done"),
        ("api-503", "503 not done"),
        ("api-reset-before", "reset not done"),
        ("api-reset-after", "reset done"),
        ("api-timeout-before", "timeout not done"),
        ("api-timeout-after", "timeout done"),
    ],
)
def test_some_requests_of_ours_are_troubled_in_the_one_way_of_the_fault_and_none_afterwards(
    tmp_path: Path, name: str, outcome: str
) -> None:
    async def main(bench: Bench) -> None:
        probes = [Probe(bench, user) for user in OURS]
        other = Probe(bench, "admin")
        found: Counter[str] = Counter()
        for seed in range(8):
            found += await seen(bench, name, seed, probes)
        assert set(found) == {outcome, "200 done"}
        told = [line for line in bench.said if f"PATCH {NODE} of" in line]
        assert len(told) == found[outcome] > 0
        assert await seen(bench, name, 1, [other]) == Counter({"200 done": other.sent})
        assert {await probe.write() for probe in probes for _ in range(100)} == {"200 done"}

    drive(tmp_path, main, controllers=1)


def test_a_429_says_when_to_come_again(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        link = bench.cluster.connect("agent:node-1")
        asked = set()
        for seed in range(8):
            fault = bench.begin("api-429", seed)
            await asyncio.sleep(0)
            while not fault.done():
                answer = await link.request("GET", NODE)
                asked.add(answer.headers.get("retry-after"))
                await asyncio.sleep(PACE)
        assert asked == {None, "1", "2", "10"}

    drive(tmp_path, main, controllers=1)


def test_a_cancelled_fault_is_over(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        names = (
            "api",
            "api-slow",
            "list-slow",
            "list-pages",
            "conflict",
            "lease-slow",
            "lease-fails",
            "server-restart",
        )
        begun = [bench.begin(name) for name in (*names, "net-cut", "net-stall")]
        await asyncio.sleep(0.1)
        for task in begun:
            task.cancel()
        await asyncio.wait(begun)
        probe = Probe(bench, "", bench.node.agent_link)
        assert {await probe.write() for _ in range(100)} == {"200 done"}

    drive(tmp_path, main, controllers=1)


def test_a_slow_list_is_late_and_may_be_old_then(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        link = bench.cluster.connect("agent:node-1")
        old = set()
        for seed in range(30):
            fault = bench.begin("list-slow", seed)
            await asyncio.sleep(0)
            begun = bench.now
            listing = asyncio.ensure_future(link.request("GET", NODES, timeout=30))
            await asyncio.sleep(0.1)
            await bench.label(seed=str(seed))
            answer = await listing
            if bench.now - begun > 0.3:
                old.add(b'"seed":"%d"' % seed not in answer.body)
            begun = bench.now
            await link.request("GET", NODE)
            assert bench.now == begun
            fault.cancel()
        assert old == {True, False}

    drive(tmp_path, main, controllers=1)


def test_lists_come_in_pages_whose_history_may_be_compacted_in_between(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        probe = Probe(bench, "agent:node-1")
        statuses = set()
        for seed in range(8):
            fault = bench.begin("list-pages", seed)
            await asyncio.sleep(0)
            link = bench.cluster.connect("agent:node-1")
            first = await link.request("GET", NODES, query={"limit": "500"})
            assert len(json.loads(first.body)["items"]) <= 3
            token = first.body.partition(b'"continue":"')[2].partition(b'"')[0].decode()
            statuses.add(await probe.ask("GET", NODES, limit="500", **{"continue": token}))
            fault.cancel()
        assert statuses == {"200", "410"}
        whole = await bench.cluster.connect("admin").request("GET", NODES, query={"limit": "500"})
        assert len(json.loads(whole.body)["items"]) == 4

    drive(tmp_path, main, controllers=1, nodes=4)


def test_conditional_writes_conflict_and_others_do_not(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        probe = Probe(bench, "agent:node-1")
        conditional, plain = set(), set()
        fault = bench.begin("conflict")
        await asyncio.sleep(0)
        while not fault.done():
            version = bench.of_node()["metadata"]["resourceVersion"]
            body = f'{{"metadata": {{"resourceVersion": "{version}", "labels": {{"x": "{bench.now}"}}}}}}'
            conditional.add(await probe.ask("PATCH", NODE, body.encode()))
            plain.add(await probe.write())
            await asyncio.sleep(PACE)
        assert conditional == {"200", "409"}
        assert plain == {"200 done"}

    drive(tmp_path, main, controllers=1)


def test_requests_for_the_lease_are_slow_and_no_others(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.until(lambda: bench.cluster.leader is not None)
        probe = Probe(bench, "controller:controller-1")
        fault = bench.begin("lease-slow")
        await asyncio.sleep(0)
        assert await probe.ask("GET", LEASE) == "timeout"
        assert await probe.write() == "200 done"
        await fault
        assert await probe.ask("GET", LEASE) == "404"

    drive(tmp_path, main, controllers=1)


def test_a_leader_whose_lease_cannot_be_written_stops_and_another_one_leads(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.until(lambda: bench.cluster.leader is not None)
        first = bench.cluster.leader
        seed = await seed_that_says(bench, "lease-fails", r"writes of controller:.*503")
        fault = bench.begin("lease-fails", seed)
        await bench.until(lambda: bench.cluster.leader not in (None, first), 30)
        await fault
        assert first is not None
        assert not first.leads

    drive(tmp_path, main, controllers=2)


def test_a_deleted_lease_makes_a_replica_that_begins_lead_beside_the_leader(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.until(lambda: bench.cluster.leader is not None)
        at_once = 0
        for _ in range(10):
            await asyncio.sleep(20)
            standby = next(replica for replica in bench.cluster.replicas if not replica.leads)
            standby.hold()
            await asyncio.sleep(5)
            await bench.cause("lease-deleted")
            standby.release()
            for _ in range(60):
                await asyncio.sleep(PACE)
                at_once = max(at_once, sum(replica.leads for replica in bench.cluster.replicas))
        assert at_once == 2
        await asyncio.sleep(10)
        assert sum(replica.leads for replica in bench.cluster.replicas) == 1
        assert len([*bench.cluster.server.store.all(kinds.LEASES)]) == 1

    drive(tmp_path, main, controllers=2)


def test_a_cut_network_refuses_at_once_and_a_stalled_one_delivers_late(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        links = {"controller:controller-1": bench.cluster.replicas[0].link, "agent:node-1": bench.node.agent_link}
        for name, outcome in (("net-cut", "reset not done"), ("net-stall", "timeout not done")):
            for victim in links:
                seed = await seed_that_says(bench, name, rf"{victim} for \d\d")
                fault = bench.begin(name, seed)
                await asyncio.sleep(0)
                for user, link in links.items():
                    probe = Probe(bench, user, link)
                    assert await probe.write() == (outcome if user == victim else "200 done")
                await fault
                await asyncio.sleep(0)
                assert [await Probe(bench, user, link).write() for user, link in links.items()] == ["200 done"] * 2

    drive(tmp_path, main, controllers=1)


def test_what_was_sent_into_a_stalled_network_arrives_when_it_is_over(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        seed = await seed_that_says(bench, "net-stall", r"agent:node-1 for \d\d")
        fault = bench.begin("net-stall", seed)
        await asyncio.sleep(0)
        assert await Probe(bench, "", bench.node.agent_link).write() == "timeout not done"
        await fault
        await asyncio.sleep(0.1)
        assert "probe" in bench.of_node()["metadata"]["labels"]

    drive(tmp_path, main, controllers=1)


def test_a_server_that_restarts_breaks_watches_and_refuses_everybody_but_a_person(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        async def watch() -> None:
            async with bench.cluster.connect("agent:node-1").stream(NODES, timeout=5) as stream:
                async for _ in stream:
                    pass

        watching = asyncio.ensure_future(watch())
        await asyncio.sleep(1)
        fault = bench.begin("server-restart")
        await asyncio.sleep(0.1)
        assert watching.done()
        answers = [await Probe(bench, user).write() for user in ("agent:x", "kubelet:x", "admin")]
        assert answers == ["reset not done", "reset not done", "200 done"]
        await fault
        assert await Probe(bench, "agent:x").write() == "200 done"

    drive(tmp_path, main, controllers=1)
