"""What admins do to Nodes and to objects of ours: it is done, and put right where a person would."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reconciler.api import names
from reconciler.kube.resources import NODERUNTIMES, NODES
from reconciler.sim import kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import Foreign
from reconciler.sim.loops import HANDLER, RUNTIME, manifest
from tests.unit.sim.bench import Bench, drive

STATE = names.state_annotation(RUNTIME)
STAGE = names.stage_label(RUNTIME)


def marks(bench: Bench, part: str) -> dict[str, str]:
    return dict(bench.of_node()["metadata"].get(part) or {})


async def ready(bench: Bench, **spec: Any) -> None:
    body = manifest()
    body["spec"] |= spec
    await bench.cluster.admin.create(NODERUNTIMES, body)
    await bench.until(lambda: marks(bench, "labels").get(STAGE) == "ready")


def test_a_cordon_stands_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("cordon")
        await asyncio.sleep(1)
        assert bench.of_node()["spec"]["unschedulable"] is True
        assert bench.world.foreign == [Foreign("cordon", "node-1", "", "")]
        await bench.cause("cordon", 2)  # it is cordoned already
        assert len(bench.said) == 1
        await fault
        assert bench.world.foreign == []
        assert "unschedulable" not in bench.of_node().get("spec", {})

    drive(tmp_path, main)


def test_a_taint_stands_for_a_while_beside_those_that_are_there(tmp_path: Path) -> None:
    other = {"key": "other", "effect": "NoExecute"}
    ours = {"key": "example.org/maintenance", "effect": "NoSchedule"}

    async def main(bench: Bench) -> None:
        await bench.cluster.admin.patch(NODES, "node-1", {"spec": {"taints": [other]}})
        fault = bench.begin("taint")
        await asyncio.sleep(1)
        assert bench.of_node()["spec"]["taints"] == [other, ours]
        assert bench.world.foreign == [Foreign("taint", "node-1", "example.org/maintenance", "NoSchedule")]
        await fault
        assert bench.world.foreign == []
        assert bench.of_node()["spec"]["taints"] == [other]

    drive(tmp_path, main)


def test_a_label_and_an_annotation_stand_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        fault = bench.begin("label")
        await asyncio.sleep(1)
        label, annotation = bench.world.foreign
        assert (label.kind, annotation.kind) == ("label", "annotation")
        assert marks(bench, "labels")[label.where] == label.what
        assert marks(bench, "annotations")[annotation.where] == annotation.what
        fault.cancel()
        await asyncio.wait({fault})
        assert bench.world.foreign == []
        assert label.where not in {**marks(bench, "labels"), **marks(bench, "annotations")}

    drive(tmp_path, main)


def test_a_node_is_deselected_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await bench.label(zone="a")
        await ready(bench, nodeSelector={"matchLabels": {"zone": "a"}})
        fault = bench.begin("deselected")
        await asyncio.sleep(1)
        assert bench.said == ["deselected: zone=a is taken off node-1"]
        assert "zone" not in marks(bench, "labels")
        await fault
        assert marks(bench, "labels")["zone"] == "a"

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_a_kubelet_that_registers_anew_loses_all_marks_but_those_of_the_machine(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        bench.node.labels["pool"] = "kata"
        await bench.label(pool="kata", other="x")
        await ready(bench)
        bench.world.foreign.append(Foreign("label", "node-1", "other", "x"))
        fault = bench.begin("relabelled")
        await bench.until(lambda: "other" not in marks(bench, "labels"), 1)
        assert "pool" not in marks(bench, "labels")
        assert marks(bench, "labels").get(STAGE) != "ready"
        assert "ready" not in marks(bench, "annotations").get(STATE, "")
        assert marks(bench, "labels")["kubernetes.io/hostname"] == "node-1"
        assert bench.world.foreign == []
        await fault
        assert marks(bench, "labels")["pool"] == "kata"
        await bench.until(lambda: marks(bench, "labels").get(STAGE) == "ready")

    drive(tmp_path, main, agent=real_agent, controllers=1)


@pytest.mark.parametrize("seed", range(4))
def test_our_labels_are_edited_and_we_say_again_what_is_true(tmp_path: Path, seed: int) -> None:
    async def main(bench: Bench) -> None:
        await ready(bench)
        before = {key: value for key, value in marks(bench, "labels").items() if "sim/" not in key}
        await bench.cause("our-labels", seed)
        assert len(bench.said) == 1
        await bench.until(lambda: {k: v for k, v in marks(bench, "labels").items() if "sim/" not in k} == before, 60)

    drive(tmp_path, main, agent=real_agent, controllers=1)


@pytest.mark.parametrize("seed", range(8))
def test_our_annotations_are_garbled_and_the_node_is_ready_in_the_end(tmp_path: Path, seed: int) -> None:
    async def main(bench: Bench) -> None:
        await ready(bench)
        await bench.cause("our-annotations", seed)
        assert len(bench.said) == 1
        await bench.until(lambda: STATE in marks(bench, "annotations"), 60)
        await bench.until(lambda: marks(bench, "labels").get(STAGE) == "ready", 60)
        assert HANDLER in bench.node.daemon.loaded.handlers

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_the_pod_of_an_agent_is_deleted_and_made_again(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        def uid() -> str:
            found = bench.there(kinds.PODS, "reconciler-agent-node-1", names.NAMESPACE)
            return "" if found is None else str(found["metadata"]["uid"])

        await bench.until(lambda: uid() != "")
        before = uid()
        await bench.cause("agent-pod-deleted")
        await bench.until(lambda: uid() not in ("", before), 10)

    drive(tmp_path, main, agent=real_agent)


def test_an_agent_whose_node_was_away_for_longer_than_its_pod_is_kept_gets_another_pod(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        def there() -> bool:
            return bench.there(kinds.PODS, "reconciler-agent-node-1", names.NAMESPACE) is not None

        await bench.until(there)
        first = bench.node.agent
        await bench.cluster.delete_node("node-1")
        await bench.until(lambda: not there())
        await asyncio.sleep(30)
        assert not there()  # there is no Node that it could be for
        await bench.node.restart_kubelet()
        await bench.until(there, 10)
        await bench.until(lambda: bench.node.agent not in (None, first), 10)

    drive(tmp_path, main, agent=real_agent)


def test_a_class_of_ours_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await ready(bench)
        await bench.cause("class-deleted")
        assert bench.said == [f"class-deleted: {HANDLER}"]
        assert bench.there(kinds.RUNTIMECLASSES, HANDLER) is None
        await bench.until(lambda: bench.there(kinds.RUNTIMECLASSES, HANDLER) is not None, 60)

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_a_class_of_ours_loses_its_marks_for_a_while(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await ready(bench)
        before = (bench.there(kinds.RUNTIMECLASSES, HANDLER) or {})["metadata"]
        fault = bench.begin("class-edited")
        await asyncio.sleep(1)
        during = (bench.there(kinds.RUNTIMECLASSES, HANDLER) or {})["metadata"]
        assert not during.get("labels") and not during.get("annotations")
        await fault
        after = (bench.there(kinds.RUNTIMECLASSES, HANDLER) or {})["metadata"]
        assert (after["labels"], after["annotations"]) == (before["labels"], before["annotations"])

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_a_revision_of_ours_comes_back_from_a_backup(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        def revisions() -> list[Any]:
            return [record.object for _, record in bench.cluster.server.store.all(kinds.CONTROLLERREVISIONS)]

        await ready(bench)
        (before,) = revisions()
        fault = bench.begin("revision-deleted")
        await bench.until(lambda: [r["metadata"]["uid"] for r in revisions()] != [before["metadata"]["uid"]], 1)
        await fault
        (after,) = revisions()
        assert after["data"] == before["data"]

    drive(tmp_path, main, agent=real_agent, controllers=1)


def test_a_workload_holds_the_removal_back_until_it_ends(tmp_path: Path) -> None:
    async def main(bench: Bench) -> None:
        await ready(bench)
        fault = bench.begin("workload", 2)
        await asyncio.sleep(3)
        await bench.cluster.admin.delete(NODERUNTIMES, RUNTIME)
        while not fault.done():
            assert HANDLER in bench.node.daemon.loaded.handlers
            await asyncio.sleep(0.5)
        await bench.until(lambda: bench.there(kinds.NODERUNTIMES, RUNTIME) is None)
        assert bench.said[0].startswith("workload: uses-")

    drive(tmp_path, main, agent=real_agent, controllers=1)
