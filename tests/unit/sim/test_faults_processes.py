"""Our processes die when and where a fault says, and come back; clocks go wrong, and right again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim import clock, kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.faults.processes import at_await
from reconciler.sim.life import Life
from reconciler.sim.loops import BINARY, manifest, phase
from tests.unit.sim.bench import Bench, drive, seed_that_says

JOURNAL = "var/lib/runtime-reconciler/journal.json"


async def leads(bench: Bench) -> None:
    await bench.until(lambda: bench.cluster.leader is not None)


async def rollout(bench: Bench) -> None:
    phases = {"install": phase("seconds=1", f"drop={BINARY}"), "uninstall": phase("seconds=1", f"take={BINARY}")}
    await bench.cluster.admin.create(NODERUNTIMES, manifest(unavailable="100%", **phases))


def ready(bench: Bench) -> bool:
    labels = bench.of_node()["metadata"].get("labels") or {}
    return "ready" in labels.values()


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_process_is_killed_at_that_await_and_takes_no_step_after_it(number: int) -> None:
    async def main() -> None:
        steps = 0

        async def work() -> None:
            nonlocal steps
            while True:
                await asyncio.sleep(1)
                steps += 1

        life = Life()
        running = life.start(work())
        await asyncio.sleep(0.5)
        await at_await(life, number, lambda: [running.cancel()].clear())
        await asyncio.wait({running})
        assert running.cancelled()
        assert steps == number - 1

    clock.run(main())


def test_tasks_that_a_process_began_are_its_steps_and_those_of_others_are_not() -> None:
    async def main() -> None:
        async def busy(period: float) -> None:
            for _ in range(1_000):
                await asyncio.sleep(period)

        async def parent() -> None:
            await asyncio.gather(busy(1.0), busy(1.0))

        killed_at: list[float] = []
        life, other = Life(), Life()
        tasks = [life.start(parent()), other.start(busy(0.01))]
        await asyncio.sleep(0.5)
        await at_await(life, 6, lambda: killed_at.append(asyncio.get_running_loop().time()))
        assert killed_at == [pytest.approx(3.0)]
        for task in tasks:
            task.cancel()

    clock.run(main())


def test_a_process_that_does_nothing_is_not_killed() -> None:
    async def main() -> None:
        life = Life()
        resting = life.start(asyncio.sleep(3600))
        await asyncio.sleep(0.5)
        await at_await(life, 1, lambda: [resting.cancel()].clear())
        assert asyncio.get_running_loop().time() == 60.5
        assert not resting.done()
        resting.cancel()

    clock.run(main())


@pytest.mark.parametrize(
    ("name", "seeds", "kills"),
    [("agent", 1, 1), ("agent-at-await", 5, 1), ("agent-at-write", 5, 1), ("agent-twice", 1, 2)],
)
def test_an_agent_that_was_killed_is_another_one_and_the_rollout_ends(
    tmp_path: Path, name: str, seeds: int, kills: int
) -> None:
    async def main(bench: Bench) -> None:
        await leads(bench)
        await bench.until(lambda: bench.node.agent is not None)
        before = bench.node.life
        faults = [bench.begin(name, seed) for seed in range(seeds)]
        await rollout(bench)
        await asyncio.wait(faults)
        assert before.ended.is_set()
        assert len(bench.said) >= kills
        await bench.until(lambda: ready(bench) and not bench.node.life.ended.is_set(), 300)

    drive(tmp_path, main, controllers=1, agent=real_agent)


def test_an_agent_is_killed_in_the_middle_of_a_change_and_leaves_its_journal(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await leads(bench)
        left = set()
        for seed in range(4):
            fault = bench.begin("agent-at-step", seed)
            if seed == 0:
                await rollout(bench)
            await fault
            left.add((bench.node.root / JOURNAL).exists())
        assert all(re.match(r"agent-at-step: that of node-1 is killed before \w", line) for line in bench.said)
        assert True in left
        await bench.until(lambda: ready(bench), 300)
        assert bench.node.on_step == []

    drive(tmp_path, main, controllers=1, agent=real_agent)


@pytest.mark.parametrize("name", ["controller", "controller-at-await", "controller-at-write", "controller-twice"])
def test_a_controller_that_was_killed_comes_back_and_the_rollout_ends(tmp_path: Path, name: str) -> None:
    async def main(bench: Bench) -> None:
        await leads(bench)
        (replica,) = bench.cluster.replicas
        fault = bench.begin(name)
        await rollout(bench)
        await fault
        assert replica.kills == (2 if name == "controller-twice" else 1)
        await bench.until(lambda: ready(bench), 300)
        assert not replica.life.ended.is_set()

    drive(tmp_path, main, controllers=1, agent=real_agent)


def test_a_container_that_starts_again_goes_on_with_its_own_lease_and_another_pod_waits_for_it(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        (replica,) = bench.cluster.replicas
        waited = {}
        for same_pod in (True, False):
            await leads(bench)
            replica.kill(same_pod=same_pod)
            begun = bench.now
            await bench.until(lambda: not replica.leads)
            await leads(bench)
            waited[same_pod] = bench.now - begun
        assert waited[True] < 2
        assert 8 < waited[False] < 13

    drive(tmp_path, main, controllers=1)


def test_a_standby_is_killed_and_the_leader_goes_on(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await leads(bench)
        leader = bench.cluster.leader
        await bench.cause("standby")
        assert [replica.kills for replica in bench.cluster.replicas if replica is not leader] == [1]
        assert bench.cluster.leader is leader

    drive(tmp_path, main, controllers=2)


def test_all_controllers_are_away_for_minutes_and_then_one_leads(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await leads(bench)
        fault = bench.begin("controllers-away")
        await asyncio.sleep(15)
        audit = bench.cluster.server.audit
        audit.clear()
        await fault
        assert bench.now > 35
        assert [a for a in audit if a.user.startswith("controller:")] == []
        await leads(bench)

    drive(tmp_path, main, controllers=2)


@pytest.mark.parametrize(("name", "there"), [("agent-away", True), ("agent-withdrawn", False)])
def test_an_agent_is_away_for_minutes_and_its_pod_says_so(tmp_path: Path, name: str, there: bool) -> None:
    async def main(bench: Bench) -> None:
        def pod() -> dict[str, str]:
            found = bench.there(kinds.PODS, "reconciler-agent-node-1", bench.cluster.options.namespace) or {}
            return {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", ())}

        await bench.until(lambda: pod() == {"Ready": "True"})
        fault = bench.begin(name)
        await asyncio.sleep(15)
        assert pod() == ({"Ready": "False"} if there else {})
        await fault
        await bench.until(lambda: pod() == {"Ready": "True"}, 10)

    drive(tmp_path, main, agent=real_agent)


def test_a_clock_of_one_machine_or_of_all_jumps_and_comes_back(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        (replica,) = bench.cluster.replicas
        clocks: dict[str, Callable[[], timedelta]] = {
            "everybody's": lambda: bench.cluster.options.clock.now() - right(),
            "that of node-1": lambda: bench.node.clock.now() - right(),
            "that of controller-1": lambda: replica.clock.now() - right(),
        }

        def right() -> datetime:
            return clock.EPOCH + timedelta(seconds=bench.now)

        for name, whose in (("clock-jump", ""), ("clock-skew", "node-1"), ("clock-skew", "controller-1")):
            fault = bench.begin(name, await seed_that_says(bench, name, whose))
            await asyncio.sleep(1)
            off = timedelta(seconds=float(bench.said[-1].split()[-2]))
            wrong = {which for which, ahead in clocks.items() if abs(ahead() - off) < timedelta(seconds=1)}
            assert wrong == ({*clocks} if not whose else {f"that of {whose}"})
            assert bench.now == bench.node.clock.monotonic() == replica.clock.monotonic()
            await fault
            assert {ahead() for ahead in clocks.values()} == {timedelta()}

    drive(tmp_path, main, controllers=1)
