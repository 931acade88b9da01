"""The simulated kubelet does what the table says that real ones are held to as well."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.sim import clock
from reconciler.sim.cluster import Cluster, Options, running
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.runtime import SimCri
from tests.conformance.api import Api
from tests.conformance.kubelet_bench import IMAGE, MARKS, Bench
from tests.conformance.kubelet_ways import WAYS, Seen, Way, Window, wrong

SEEDS = range(1, 9)


class SimMachine:
    """A simulated node as the bench sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = "node-1"
        self._node = cluster.nodes[self.name]
        self._marks = self._node.root / MARKS.lstrip("/")
        self._marks.mkdir(parents=True)

    async def stop_containerd(self) -> None:
        await self._node.daemon.stop()

    async def start_containerd(self) -> None:
        await self._node.daemon.start("fault")
        await self._node.daemon.served()

    async def stop_kubelet(self) -> None:
        self._node.stop_kubelet()

    async def start_kubelet(self) -> None:
        await self._node.start_kubelet()

    async def stop_sandbox(self, uid: str) -> None:
        sandboxes = [one.id for one in self._node.runtime.sandboxes.values() if one.pod_uid == uid]
        for sandbox in sandboxes:
            await SimCri(self._node.runtime).stop_sandbox(sandbox, timeout=4.0)

    async def runs(self, uid: str) -> bool:
        return bool(self._node.runtime.running(uid))

    async def marks(self, name: str) -> int:
        file = self._marks / name
        return len(file.read_text()) if file.exists() else 0

    async def failed_kills(self, uid: str) -> int:
        return self._node.kubelet.failed_kills


async def seen(way: Way, root: Path, seed: int) -> Seen:
    options = Options(root=root, clock=clock.VirtualClock(), agent=None, nodes=1, controllers=0, seed=seed)
    async with running(options) as cluster:
        cluster.images.add(IMAGE)
        machine = SimMachine(cluster)
        await cluster.nodes[machine.name].daemon.served()
        api = Api(MemoryTransport(cluster.server, user="admin"), lambda: asyncio.sleep(0))
        async with asyncio.TaskGroup() as tasks:
            return await way.act(Bench(api, machine, tasks))


@pytest.mark.parametrize("title", WAYS)
def test_it_does_what_the_table_says(title: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        told = clock.run(seen(WAYS[title], tmp_path / str(seed), seed))
        assert list(wrong(WAYS[title].expected, told)) == [], f"seed {seed}"


def test_whatever_is_not_as_expected_is_told() -> None:
    expected = {"early": Window(2, 3), "late": Window(2, 3), "in time": Window(2, 3), "value": "this", "unseen": 1}
    told = {"early": 1.9, "late": 3.1, "in time": 2.5, "value": "that", "more": 2}
    assert list(wrong(expected, told)) == [
        "early: 1.9 is not Window(least=2, most=3)",
        "late: 3.1 is not Window(least=2, most=3)",
        "more: expected None, seen 2",
        "unseen: expected 1, seen None",
        "value: 'that' is not 'this'",
    ]
