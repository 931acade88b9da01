"""What people ask of the product is asked, and taken back where they would."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from reconciler.api import names
from reconciler.kube.resources import NODERUNTIMES, NODES
from reconciler.sim import kinds
from reconciler.sim.kinds import Object
from reconciler.sim.loops import RUNTIME, manifest
from tests.unit.sim.bench import Bench, drive

STOP = kinds.named("ConfigMap")


def bodies(name: str, rng: random.Random) -> Object:
    return manifest(bake=rng.randint(1, 9))


def spec(bench: Bench) -> Object:
    found: Object = (bench.there(kinds.NODERUNTIMES, RUNTIME) or {"spec": {}})["spec"]
    return found


def test_a_runtime_is_created_edited_and_deleted(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        for name in ("created", "edited", "deleted"):
            await bench.cause(name)
        assert bench.said == []  # nobody applies anything, and nothing is there
        bench.world.bodies = bodies
        await bench.cause("created", 1)
        before = spec(bench)
        assert before["rollout"]["bakeSeconds"] == 2
        await bench.cause("created", 2)
        await bench.cluster.admin.patch(
            NODERUNTIMES, RUNTIME, {"spec": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}}
        )
        await bench.cluster.admin.patch(NODERUNTIMES, RUNTIME, {"spec": {"phases": {"install": {"hostPID": True}}}})
        await bench.cause("edited", 5)
        assert spec(bench)["rollout"]["bakeSeconds"] == 6
        assert "startupTaints" not in spec(bench)
        assert "hostPID" not in spec(bench)["phases"]["install"]
        await bench.cause("deleted", 1)
        assert spec(bench) == {}
        assert bench.said == ["created: kata is created", "edited: kata", "deleted: kata, Orphan"]

    drive(tmp_path, main)


def test_a_runtime_is_deleted_and_created_again_when_the_old_one_is_gone(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        bench.world.bodies = bodies
        await bench.cluster.admin.create(
            NODERUNTIMES, {**manifest(), "metadata": {"name": RUNTIME, "finalizers": ["x/y"]}}
        )
        before = (bench.there(kinds.NODERUNTIMES, RUNTIME) or {})["metadata"]["uid"]
        fault = bench.begin("deleted-and-back")
        await asyncio.sleep(200)
        assert "deletionTimestamp" in (bench.there(kinds.NODERUNTIMES, RUNTIME) or {})["metadata"]
        await bench.cluster.admin.patch(NODERUNTIMES, RUNTIME, {"metadata": {"finalizers": None}})
        await fault
        assert (bench.there(kinds.NODERUNTIMES, RUNTIME) or {})["metadata"]["uid"] not in ("", before)

    drive(tmp_path, main)


def test_a_runtime_is_paused_and_resumed(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cluster.admin.create(NODERUNTIMES, manifest())
        fault = bench.begin("paused")
        await asyncio.sleep(1)
        assert spec(bench)["paused"] is True
        await fault
        assert spec(bench)["paused"] is False

    drive(tmp_path, main)


def test_retry_and_skip_are_asked_for_where_there_is_something_to_try_or_to_give_up(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        for name in ("retry", "skip"):
            await bench.cause(name)
        await bench.cluster.admin.create(
            NODERUNTIMES, {**manifest(), "metadata": {"name": RUNTIME, "finalizers": ["x/y"]}}
        )
        state = {names.state_annotation(RUNTIME): "{}"}
        await bench.cluster.admin.patch(NODES, "node-1", {"metadata": {"annotations": state}})
        await bench.cause("skip")
        assert bench.said == []
        await bench.cause("retry")
        await bench.cluster.admin.delete(NODERUNTIMES, RUNTIME)
        await bench.cause("skip")
        there = bench.of_node()["metadata"]["annotations"]
        assert there == {**state, names.retry_annotation(RUNTIME): "true", names.skip_annotation(RUNTIME): "true"}
        assert bench.said == ["retry: kata on node-1", "skip: kata on node-1"]

    drive(tmp_path, main)


def test_everything_is_stopped_for_a_while_by_one_of_two(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("stop")
        await asyncio.sleep(1)
        await bench.cause("stop", 2)
        assert len(bench.said) == 1
        assert bench.there(STOP, names.STOP_NAME, names.NAMESPACE) is not None
        await fault
        assert bench.there(STOP, names.STOP_NAME, names.NAMESPACE) is None

    drive(tmp_path, main)
