"""Faults of machines do what they say, and are over when they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.sim import judge, kinds
from reconciler.sim.cluster import Foreign
from tests.unit.sim.bench import Bench, drive


def test_a_reboot_ends_with_the_machine_up_and_another_boot_id(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        before, begun = bench.node.boot_id, bench.now
        fault = bench.begin("reboot")
        await asyncio.sleep(3)
        assert not bench.cluster.is_on("node-1")
        assert not bench.node.daemon.serving
        await fault
        assert bench.cluster.is_on("node-1")
        assert bench.node.boot_id not in ("", before)
        assert 5 <= bench.now - begun <= 31
        assert bench.said == ["reboot: node-1 is off for 8 s"]

    drive(tmp_path, main)


def test_a_loss_of_power_is_told_as_unknown_and_cancelled_gives_the_power_back(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("power-loss")
        await asyncio.sleep(50)
        assert bench.ready() == "Unknown"
        fault.cancel()
        await asyncio.wait({fault})
        await bench.node.up()
        assert bench.ready() == "True"

    drive(tmp_path, main)


def test_a_machine_that_is_off_is_hit_by_nothing_else(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("power-loss")
        await asyncio.sleep(1)
        for name in ("reboot", "kubelet", "node-again", "node-replaced", "outage", "crash"):
            await bench.cause(name)
        assert bench.said == ["power-loss: node-1 is off for 92 s"]
        await fault

    drive(tmp_path, main)


def test_a_kubelet_is_another_one_after_its_restart(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        before = bench.node.kubelet
        await bench.cause("kubelet")
        assert bench.node.kubelet is not before

    drive(tmp_path, main)


@pytest.mark.parametrize(("seed", "how"), [(1, "kubelet is restarted"), (6, "machine is rebooted")])
def test_a_node_made_again_has_another_uid_and_its_old_disk(tmp_path: Path, seed: int, how: str) -> None:
    async def main(bench: Bench) -> None:
        before, machine = bench.uid(), bench.node.machine_id
        (bench.node.root / "opt/left").write_text("")
        bench.world.foreign.extend([Foreign("label", "node-1", "a", "b"), Foreign("text", "node-1", "/etc/x", "y")])
        fault = bench.begin("node-again", seed)
        await bench.until(lambda: bench.there(kinds.NODES, "node-1") is None)
        await fault
        assert bench.uid() not in ("", before)
        assert bench.node.machine_id == machine
        assert (bench.node.root / "opt/left").exists()
        assert [thing.kind for thing in bench.world.foreign] == ["text"]  # what was on the Node is gone with it
        assert how in bench.said[0]

    drive(tmp_path, main)


def test_a_replaced_machine_has_a_fresh_disk(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        before, machine = bench.uid(), bench.node.machine_id
        (bench.node.root / "opt/left").write_text("")
        bench.world.foreign.extend([Foreign("text", "node-1", "/etc/x", "y")])
        await bench.cause("node-replaced", 2)
        assert "its Node is deleted" in bench.said[0]
        assert bench.uid() not in ("", before)
        assert bench.node.machine_id != machine
        assert not (bench.node.root / "opt/left").exists()
        assert bench.world.foreign == []

    drive(tmp_path, main)


def test_a_node_joins_and_stays(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cause("node-joins", 1)
        assert bench.said == ["node-joins: node-2"]
        assert sorted(bench.cluster.nodes) == ["node-1", "node-2"]
        assert bench.ready("node-2") == "True"

    drive(tmp_path, main)


def test_a_node_joins_and_leaves_for_good_and_its_name_is_not_used_again(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("node-joins", 2)
        await bench.until(lambda: bench.there(kinds.NODES, "node-2") is not None)
        await fault
        assert sorted(bench.cluster.nodes) == ["node-1"]
        assert bench.there(kinds.NODES, "node-2") is None
        await bench.cause("node-joins", 1)
        assert bench.said[1] == "node-joins: node-3"

    drive(tmp_path, main)


def test_nodes_leave_but_not_the_last_two(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        for seed in range(3):
            await bench.cause("node-leaves", seed)
        assert len(bench.cluster.nodes) == 2
        assert len(bench.said) == 1
        gone = bench.said[0].removeprefix("node-leaves: ")
        assert bench.there(kinds.NODES, gone) is None

    drive(tmp_path, main, nodes=3)


def test_a_node_that_joined_is_judged_as_one_that_was_fresh(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        before = judge.look(bench.cluster)
        bench.node.labels["pool"] = "a"
        await bench.cause("node-joins", 1)
        await bench.cluster.nodes["node-2"].daemon.served()
        assert judge.left_behind(bench.cluster, before) == []
        (bench.cluster.nodes["node-2"].root / "opt/left").write_text("")
        assert judge.left_behind(bench.cluster, before) == ["node-2: /opt/left is left"]

    drive(tmp_path, main)
