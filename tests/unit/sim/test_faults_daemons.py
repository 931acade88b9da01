"""Faults of containerd do what they say, and are over when they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.sim.agents import real_agent
from reconciler.sim.containerd import START_SECONDS
from tests.unit.sim.bench import Bench, drive


def starts(bench: Bench) -> list[str]:
    return [start.initiator for start in bench.node.daemon.starts]


def test_containerd_dies_again_and_again(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cause("killed-again")
        assert bench.said == ["killed-again: containerd of node-1, 6 times"]
        await bench.node.daemon.served()
        assert starts(bench) == ["boot", *["systemd"] * 6]

    drive(tmp_path, main)


def test_a_slow_containerd_is_as_fast_as_before_afterwards(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("slow-start")
        await asyncio.sleep(1)
        assert bench.node.daemon.unit.active == "activating"
        await fault
        assert bench.node.daemon.serving
        assert bench.node.daemon.outages[-1][1] - bench.node.daemon.outages[-1][0] > 4
        assert bench.node.daemon.start_seconds == START_SECONDS

    drive(tmp_path, main)


def test_containerd_without_cri_is_mended_by_a_person(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("without-cri")
        await asyncio.sleep(3)
        assert (bench.node.daemon.unit.active, bench.node.daemon.serving) == ("active", False)
        await fault
        await bench.node.daemon.served()
        assert bench.node.daemon.without_cri == ""
        assert starts(bench) == ["boot", "admin", "admin"]

    drive(tmp_path, main)


@pytest.mark.parametrize(("name", "ready"), [("cri-hangs", "True"), ("not-ready", "False")])
def test_cri_hangs_and_answers_again(tmp_path: Path, name: str, ready: str) -> None:
    async def main(bench: Bench) -> None:
        states: list[str] = []
        fault = bench.begin(name)
        while not fault.done():
            states.append(bench.ready())
            await asyncio.sleep(0.5)
        assert ready in states
        assert not bench.node.daemon.hang
        await bench.until(lambda: bench.ready() == "True", 5)

    drive(tmp_path, main)


def test_the_start_limit_leaves_the_unit_failed_and_an_agent_starts_it(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("start-limit")
        await bench.until(lambda: bench.node.daemon.unit.active == "failed", 60)
        assert bench.node.daemon.unit.result == "start-limit-hit"
        await bench.until(lambda: bench.node.daemon.serving, 60)
        await fault
        assert starts(bench)[-1] == "agent"

    drive(tmp_path, main, agent=real_agent)


def test_a_person_starts_what_the_start_limit_left_failed_where_there_is_no_agent(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cause("start-limit")
        await bench.node.daemon.served()
        assert starts(bench)[-1] == "admin"

    drive(tmp_path, main)


def test_a_containerd_that_an_admin_stopped_is_started_by_nobody_else(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cause("stopped")
        await bench.node.daemon.served()
        assert bench.said == ["stopped: containerd of node-1, for 105 s"]
        assert starts(bench) == ["boot", "admin"]

    drive(tmp_path, main, agent=real_agent)


def test_a_stop_that_is_cut_short_ends_with_a_start(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("stopped")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        fault.cancel()
        await asyncio.wait({fault})
        await bench.node.daemon.served()
        await asyncio.sleep(10)
        assert bench.node.daemon.serving

    drive(tmp_path, main)


def test_after_an_upgrade_the_agent_knows_the_new_version(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await asyncio.sleep(5)
        before = bench.node.agent
        await bench.cause("upgrade")
        assert bench.said == ["upgrade: containerd of node-1 to 1.7.34, restarted 0 s later"]
        await asyncio.sleep(30)
        assert bench.node.daemon.version == "1.7.34"
        assert bench.node.agent not in (None, before)
        assert bench.of_node()["status"]["nodeInfo"]["containerRuntimeVersion"] == "containerd://1.7.34"
        assert (
            '"containerd":"1.7.34"' in bench.of_node()["metadata"]["annotations"]["agent.runtime-reconciler.io/report"]
        )

    drive(tmp_path, main, agent=real_agent)
