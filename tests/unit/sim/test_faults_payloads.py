"""Faults of payloads and of their pods do what they say, and are over when they end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reconciler.api import names
from reconciler.kube.resources import PODS
from reconciler.sim import kinds
from reconciler.sim.faults.payloads import LOG
from reconciler.sim.kinds import Object
from reconciler.sim.payload import Behaviour
from tests.unit.sim.bench import Bench, drive

PHASE = {names.COMPONENT_LABEL: names.COMPONENT_PHASE}
BASE = Behaviour(hang=True, label=("done", "yes"))


def pod(bench: Bench) -> Object:
    return bench.there(kinds.PODS, "p", names.NAMESPACE) or {}


def ended(bench: Bench) -> Object:
    found: Object = pod(bench)["status"]["containerStatuses"][0]["state"].get("terminated") or {}
    return found


@pytest.mark.parametrize(
    ("name", "seed", "wanted"),
    [
        ("payload-crashes", 1, Behaviour(exit_code=1, log=LOG)),
        ("payload-crashes", 2, Behaviour(hang=True, label=("done", "yes"), needs="/no/such/file", log=LOG)),
        ("payload-oom", 1, Behaviour(hang=True, label=("done", "yes"), oom=True)),
        ("payload-hangs", 1, Behaviour(hang=True, ignores_term=True)),
        ("payload-hangs", 2, Behaviour(hang=True)),
        ("payload-restarts-containerd", 1, Behaviour(hang=True, label=("done", "yes"), restarts=1)),
        ("payload-restarts-kubelet", 1, Behaviour(hang=True, label=("done", "yes"), restarts_kubelet=True)),
        ("hook-restarts-containerd", 1, Behaviour(hang=True, label=("done", "yes"), hook_restarts=True)),
    ],
)
def test_a_payload_is_twisted_once(tmp_path: Path, name: str, seed: int, wanted: Behaviour) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin(name, seed)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (twist,) = bench.node.runtime.twists
        bench.node.runtime.twists.clear()
        assert twist(BASE) == wanted
        await fault
        assert bench.said[0].startswith(name)

    drive(tmp_path, main)


def test_a_payload_is_late_or_says_twice_by_seconds_of_its_own(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        for name in ("payload-late", "payload-says-twice"):
            bench.begin(name)
        await asyncio.sleep(0.1)
        late, twice = bench.node.runtime.twists
        assert 20 <= late(BASE).seconds <= 241
        assert 0.5 <= twice(BASE).again <= 20

    drive(tmp_path, main)


def test_a_twist_that_no_payload_meets_is_taken_back(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.cause("payload-oom")
        assert bench.node.runtime.twists == []
        assert bench.said == []

    drive(tmp_path, main)


def test_a_payload_that_crashes_fails(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("payload-crashes")
        await asyncio.sleep(1)
        await bench.pod("p", "hang", **PHASE)
        await fault
        await bench.until(lambda: (pod(bench).get("status") or {}).get("phase") == "Failed")
        assert ended(bench)["exitCode"] == 1
        assert bench.said == ["payload-crashes: after its work, on node-1"]

    drive(tmp_path, main)


def test_an_image_cannot_be_pulled_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("image-missing")
        await asyncio.sleep(1)
        await bench.pod("p", "hang", **PHASE)
        await asyncio.sleep(3)
        waiting = pod(bench)["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "ImagePullBackOff"
        await fault
        await bench.until(lambda: pod(bench)["status"]["phase"] == "Running")

    drive(tmp_path, main)


def test_a_payload_says_with_its_last_breath_that_it_is_done(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.pod("p", "label=done=yes", "seconds=1000", "ignore-term", **PHASE)
        await asyncio.sleep(3)
        fault = bench.begin("old-signal", 3)
        await asyncio.sleep(1)
        assert "done" not in bench.of_node()["metadata"]["labels"]
        await bench.cluster.admin.delete(PODS, "p", names.NAMESPACE, grace_seconds=30)
        await fault
        assert bench.of_node()["metadata"]["labels"]["done"] == "yes"

    drive(tmp_path, main)


def test_the_dead_say_nothing(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.pod("p", "label=done=yes", "seconds=1000", **PHASE)
        await asyncio.sleep(3)
        fault = bench.begin("old-signal", 1)
        await asyncio.sleep(1)
        await bench.cluster.admin.delete(PODS, "p", names.NAMESPACE, grace_seconds=0)
        await fault
        assert bench.said == []
        assert "done" not in bench.of_node()["metadata"]["labels"]

    drive(tmp_path, main)


@pytest.mark.parametrize(("seed", "words"), [(1, "phase-pod-deleted: p"), (2, "phase-pod-deleted: p by force")])
def test_a_phase_pod_is_deleted_by_somebody(tmp_path: Path, seed: int, words: str) -> None:
    async def main(bench: Bench) -> None:
        await bench.pod("p", "hang", **PHASE)
        await asyncio.sleep(3)
        await bench.cause("phase-pod-deleted", seed)
        await bench.until(lambda: pod(bench) == {}, 10)
        assert bench.said == [words]

    drive(tmp_path, main)


def test_a_phase_pod_is_evicted(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.pod("p", "hang", **PHASE)
        await asyncio.sleep(3)
        await bench.cause("phase-pod-evicted")
        await asyncio.sleep(5)
        assert (pod(bench)["status"]["phase"], pod(bench)["status"]["reason"]) == ("Failed", "Evicted")
        assert not bench.node.runtime.running(pod(bench)["metadata"]["uid"])

    drive(tmp_path, main)


def test_a_pod_that_is_evicted_says_at_once_how_its_container_ended(tmp_path: Path) -> None:
    """Else it is taken for one that never ran."""

    async def main(bench: Bench) -> None:
        await bench.pod("p", "hang", **PHASE)
        await asyncio.sleep(3)
        await bench.cause("phase-pod-evicted")
        assert pod(bench)["status"]["phase"] == "Failed"
        assert ended(bench)["exitCode"] == 137

    drive(tmp_path, main)


def test_a_pod_that_is_evicted_before_it_ran_never_runs(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        bench.node.missing.add("sim/payload")
        await bench.pod("p", "hang", **PHASE)
        await asyncio.sleep(3)
        await bench.cause("phase-pod-evicted")
        bench.node.missing.clear()
        await asyncio.sleep(600)
        assert (pod(bench)["status"]["phase"], pod(bench)["status"]["reason"]) == ("Failed", "Evicted")
        assert ended(bench) == {}
        assert not bench.node.runtime.processes

    drive(tmp_path, main)
