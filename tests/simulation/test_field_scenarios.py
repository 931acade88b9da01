"""The fault scenarios that were measured on clusters of others: each must end clean here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api import names
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim.loops import BINARY, RUNTIME, manifest, phase

Drive = Callable[..., None]

ALL_PHASES = {
    "preInstall": phase("seconds=1"),
    "install": phase("seconds=1", f"drop={BINARY}"),
    "uninstall": phase("seconds=1", f"take={BINARY}"),
    "postUninstall": phase("seconds=1"),
}
STAGES = ["pre-install", "install", "configure", "verify", "ready", "unconfigure", "uninstall", "post-uninstall"]


def full(**options: Any) -> dict[str, Any]:
    """Every phase has a payload that ends by itself."""
    return manifest(**{"unavailable": "100%", "bake": 3, **ALL_PHASES, **options})


async def reach(s: Any, stage: str) -> None:
    """Go on until some node is in `stage`, by a deletion if it is one of the way out."""
    if stage in ("unconfigure", "uninstall", "post-uninstall"):
        await s.ready()
        await s.delete()
    await s.until(lambda: s.stage_somewhere(stage))


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@pytest.mark.parametrize("stage", STAGES)
def test_deleted_in_any_stage_it_is_clean_within_a_minute(drive: Drive, stage: str, propagation: str) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await reach(s, stage)
        if s.runtime() is not None:
            await s.delete(propagation)
        assert await s.gone() < 60

    drive(main)


@pytest.mark.parametrize("stage", STAGES)
def test_a_leader_killed_in_any_stage_loses_and_repeats_nothing(drive: Drive, stage: str) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await reach(s, stage)
        s.cluster.leader.kill()
        if s.runtime() is not None and "deletionTimestamp" not in s.runtime()["metadata"]:
            await s.ready()
            await s.delete()
        await s.gone()
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)

    drive(main, controllers=2)


@pytest.mark.parametrize("stage", STAGES)
def test_agents_killed_in_any_stage_end_clean(drive: Drive, stage: str) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await reach(s, stage)
        for node in s.cluster.nodes.values():
            node.crash_agent()
        if s.runtime() is not None and "deletionTimestamp" not in s.runtime()["metadata"]:
            await s.ready()
            await s.delete()
        await s.gone()

    drive(main)


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("grace", [5, 60])
def test_b1_a_hook_that_restarts_containerd_runs_at_most_twice(drive: Drive, grace: int, deaf: bool) -> None:
    async def main(s: Any) -> None:
        hooked = phase(f"drop={BINARY}", done="sim/installed=true", grace=grace, hook=("restart",), deaf=deaf)
        await s.create(manifest(unavailable="100%", install=hooked))
        await s.ready(limit=2 * (grace + 5) + 30)  # the canary first, then the other node
        for node in s.cluster.nodes.values():
            assert sum(1 for start in node.daemon.starts if start.initiator == "hook") <= 2
        await s.delete()
        await s.gone()

    drive(main)


def test_b3_phases_that_restart_containerd_do_not_loop(drive: Drive) -> None:
    async def main(s: Any) -> None:
        phases = {name: {**body, "args": [*body["args"], "restart=1"]} for name, body in ALL_PHASES.items()}
        await s.create(full(**phases))
        await s.ready()
        await s.delete()
        await s.gone()
        assert s.restarts("payload") == 4 * len(s.cluster.nodes)
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)

    drive(main)


def test_c1_installed_again_as_soon_as_it_is_gone(drive: Drive) -> None:
    async def main(s: Any) -> None:
        for _ in range(3):
            await s.create(full())
            await s.ready()
            await s.delete()
            await s.until(lambda: s.runtime() is None)
        await s.until(lambda: not s.left())

    drive(main)


def test_d1_a_node_without_power_during_the_uninstall_holds_nobody_else_up(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        await s.delete()
        await s.until(lambda: s.stage_somewhere("uninstall"))
        await s.cluster.power_off("node-1")
        await s.not_ready("node-1")
        await s.until(lambda: s.stages()["node-2"] == "absent")
        assert s.runtime() is not None
        assert "node-1" in s.condition("Progressing")["message"]
        s.cluster.power_on("node-1")
        await s.gone()

    drive(main)


@pytest.mark.parametrize("key", [names.stage_label(RUNTIME), names.present_label(RUNTIME)])
def test_e1_e3_labels_removed_by_hand_are_written_again(drive: Drive, key: str) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        before = s.node("node-1")["metadata"]["labels"][key]
        await s.mark("node-1", **{key: None})
        await s.until(lambda: s.node("node-1")["metadata"]["labels"].get(key) == before)
        await s.delete()
        await s.gone()

    drive(main)


def test_e2_a_node_whose_selector_label_goes_is_uninstalled_after_a_minute(drive: Drive) -> None:
    async def main(s: Any) -> None:
        for name in s.cluster.nodes:
            await s.mark(name, pool="kata")
        body = full()
        body["spec"]["nodeSelector"] = {"matchLabels": {"pool": "kata"}}
        await s.create(body)
        await s.ready()
        await s.mark("node-1", pool=None)
        await asyncio.sleep(50)
        assert s.stages() == {"node-1": "ready", "node-2": "ready"}
        await s.until(lambda: s.stages() == {"node-1": "absent", "node-2": "ready"})
        await s.until(lambda: s.status()["nodes"]["total"] == 1)
        await s.mark("node-2", pool=None)
        await s.delete()
        await s.until(lambda: s.runtime() is None)

    drive(main)


def test_f1_a_node_that_joins_late_goes_the_same_way(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        s.cluster.add_node("node-9")
        seen: list[str] = []

        def done() -> bool:
            stage = s.stages()["node-9"]
            if stage not in seen:
                seen.append(stage)
            return bool(stage == "ready")

        await s.until(done)
        assert seen == ["absent", "pre-install", "install", "configure", "verify", "ready"]

    drive(main)


def test_g1_an_edited_image_is_rolled_out_and_the_uninstall_is_that_of_the_install(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        old = s.state("node-1").installed
        await s.patch({"phases": {"install": {**ALL_PHASES["install"], "image": "sim/payload:2"}}})
        await s.until(lambda: all(s.state(n).installed != old for n in s.cluster.nodes))
        await s.ready()
        await s.delete()
        await s.gone()

    drive(main)


def test_a_payload_that_fails_gives_up_on_its_node_with_a_reason_and_undoes_it(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full(install=phase("exit=1")))
        await s.until(lambda: bool(s.status().get("failed")), limit=300)
        failed = s.status()["failed"][0]
        assert failed["reason"] == "PayloadFailed"
        assert "exit code 1" in failed["message"]
        assert s.condition("Degraded")["status"] == "True"
        await s.delete()
        await s.gone()

    drive(main)


def test_an_image_that_cannot_be_pulled_is_told_and_heals_by_a_new_revision(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full(install={**ALL_PHASES["install"], "image": "example.org/none"}))
        await s.until(lambda: "ImagePullFailed" in s.condition("Progressing").get("message", ""))
        await s.patch({"phases": {"install": {"image": "sim/payload:1"}}})
        await s.ready()
        await s.delete()
        await s.gone()

    drive(main)


def test_a_power_cut_between_the_end_of_a_payload_and_the_next_stage_repeats_no_payload(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.until(lambda: s.stages()["node-1"] == "configure")
        await s.cluster.power_off("node-1")
        await asyncio.sleep(90)
        s.cluster.power_on("node-1")
        await s.ready(limit=300)
        await s.delete()
        await s.gone()

    drive(main)


def test_a_finalizer_is_there_before_the_first_node_is_touched(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.until(lambda: any(stage != "absent" for stage in s.stages().values()))
        there = await s.cluster.admin.get(NODERUNTIMES, RUNTIME)
        assert there.metadata.finalizers == (names.FINALIZER,)

    drive(main)


def test_a_node_that_waits_for_its_repair_is_not_counted_as_ready(drive: Drive) -> None:
    """A vendor's tool takes our handlers out of every configuration at once; repairs go one after the other."""

    async def main(s: Any) -> None:
        await s.create(manifest(unavailable=1, bake=30))
        await s.ready()
        for node in s.cluster.nodes.values():
            node.write_disk()
            s.cluster.spawn(node.restart_containerd("admin"))
        await s.until(lambda: s.status()["nodes"]["updating"] == 1, 20)
        await s.until(lambda: s.status()["nodes"]["ready"] == 0, 5)
        await s.says("Available", "False", "NotAllNodesReady", limit=1)
        await s.ready()
        await s.says("Available", "True", "AllNodesReady", limit=5)
        await s.delete()
        await s.gone()

    drive(main, nodes=3)
