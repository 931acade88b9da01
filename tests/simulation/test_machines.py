"""Machines that go, come back, or are not the ones they were; and a node whose agent is dead for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api.names import REPORT_ANNOTATION, state_annotation
from reconciler.kube.resources import NODES
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase

Drive = Callable[..., None]
WAY_IN = ("pre-install", "install", "configure", "verify", "ready")
MAIN = "etc/containerd/config.toml"
PRE = "/opt/kata/prepared"
STAGES = ["pre-install", "install", "configure", "verify", "ready", "unconfigure", "uninstall", "post-uninstall"]


def full(**options: Any) -> dict[str, Any]:
    """Every phase has a payload that ends by itself."""
    phases = {
        "preInstall": phase("seconds=1", f"drop={PRE}"),
        "install": phase("seconds=1", f"drop={BINARY}"),
        "uninstall": phase("seconds=1", f"take={BINARY}"),
        "postUninstall": phase("seconds=1", f"take={PRE}"),
    }
    return manifest(**{"unavailable": "100%", "bake": 3, **phases, **options})


async def reach(s: Any, stage: str) -> None:
    """Go on until node-1 is in `stage`, by a deletion if it is one of the way out."""
    if stage in ("unconfigure", "uninstall", "post-uninstall"):
        await s.ready()
        await s.delete()
    await s.until(lambda: s.stages()["node-1"] == stage)


async def end(s: Any) -> None:
    """If it is not going already, wait until all is ready, and delete it; then nothing may be left."""
    there = s.runtime()
    if there is not None and "deletionTimestamp" not in there["metadata"]:
        await s.until(lambda: set(s.stages().values()) == {"ready"} and whole(s), 400)
        await s.delete()
    await s.gone(limit=400)


def whole(s: Any) -> bool:
    """Whether every node has in truth what `ready` promises: each payload's file, and the handler."""
    return all(
        HANDLER in node.daemon.loaded.handlers
        and all((node.root / name.lstrip("/")).exists() for name in (BINARY, PRE))
        for node in s.cluster.nodes.values()
    )


@pytest.mark.parametrize(("stage", "gap"), [*((stage, 5) for stage in STAGES), ("ready", 90), ("uninstall", 90)])
def test_a_node_deleted_and_made_again_with_a_fresh_disk_is_installed_anew(drive: Drive, stage: str, gap: int) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await reach(s, stage)
        await s.cluster.power_off("node-1")
        await s.cluster.delete_node("node-1")
        s.cluster.nodes["node-1"].replace_machine()
        await asyncio.sleep(gap)
        s.cluster.power_on("node-1")
        await s.cluster.nodes["node-1"].up()
        await end(s)

    drive(main)


@pytest.mark.parametrize(("stage", "gap"), [*((stage, 5) for stage in STAGES), ("ready", 90), ("uninstall", 90)])
def test_a_node_deleted_and_made_again_with_its_dirty_disk_ends_clean(drive: Drive, stage: str, gap: int) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await reach(s, stage)
        await s.cluster.power_off("node-1")
        await s.cluster.delete_node("node-1")
        await asyncio.sleep(gap)
        s.cluster.power_on("node-1")
        await s.cluster.nodes["node-1"].up()
        if stage in WAY_IN:
            await end(s)
            return
        await s.until(lambda: s.runtime() is None)
        # the payload's files: the Node that told of them is gone, and the host's journal tells of containerd only
        unknown = {f"node-1: {path} is left" for path in (BINARY, PRE)}
        await s.until(lambda: set(s.left()) <= unknown, 400)

    drive(main)


@pytest.mark.parametrize("stage", STAGES)
def test_a_node_reset_to_a_fresh_root_under_its_node_object_is_installed_anew(drive: Drive, stage: str) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await reach(s, stage)
        await s.cluster.power_off("node-1")
        s.cluster.nodes["node-1"].replace_machine()
        await asyncio.sleep(20)
        s.cluster.power_on("node-1")
        await s.cluster.nodes["node-1"].up()
        await end(s)

    drive(main)


def test_a_node_that_is_deleted_for_good_counts_as_clean(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        await s.cluster.power_off("node-1")
        await s.cluster.delete_node("node-1")
        await s.until(lambda: s.status()["nodes"]["total"] == 1)
        await s.delete()
        await s.until(lambda: s.runtime() is None, 60)

    drive(main)


def test_a_node_whose_disk_comes_back_after_the_runtime_is_gone_is_unconfigured(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        await s.cluster.power_off("node-1")
        await s.cluster.delete_node("node-1")
        await s.delete()
        await s.until(lambda: s.runtime() is None, 60)
        node = s.cluster.nodes["node-1"]
        assert HANDLER in (node.root / MAIN).read_text()
        s.cluster.power_on("node-1")
        await s.until(lambda: s.left() == [f"node-1: {BINARY} is left", f"node-1: {PRE} is left"])
        there = await s.cluster.admin.get(NODES, "node-1")
        assert [key for key in there.metadata.labels if RUNTIME in key] == []

    drive(main)


# --- the dead-man switch ---


def test_an_agent_killed_for_good_while_cri_is_down_leaves_a_node_that_mends_itself(drive: Drive) -> None:
    """The configuration does not start, and a kubelet starts no agent without CRI: only the host can help."""

    async def main(s: Any) -> None:
        node = s.cluster.nodes["node-1"]
        good = (node.root / MAIN).read_bytes()
        node.daemon.breaks = HANDLER
        await s.create(full())
        await s.until(lambda: [x for x in node.daemon.starts if x.error and x.initiator == "agent"] != [])
        node.hold_agent()
        assert not node.daemon.serving
        assert (node.root / MAIN).read_bytes() != good
        await s.until(lambda: node.daemon.serving, 60)
        assert (node.root / MAIN).read_bytes() == good
        assert s.restarts_of("node-1", "dead-man") == 1
        node.daemon.breaks = ""
        node.release_agent()
        await s.delete()
        await s.gone()

    drive(main)


@pytest.mark.parametrize("report", [None, "{"])
def test_a_node_that_lost_all_marks_in_a_deletion_is_asked_before_the_finalizer_goes(
    drive: Drive, report: str | None
) -> None:
    """A kubelet that registers anew, or a person, takes labels and annotations away; the host still holds all of it."""

    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        await s.patch({"paused": True})
        await s.delete()
        meta = s.node("node-1")["metadata"]
        ours = {key: None for key in (*meta["labels"], *meta["annotations"]) if "runtime-reconciler" in key}
        marks: dict[str, dict[str, str | None]] = {
            "labels": {key: None for key in ours if key in meta["labels"]},
            "annotations": {key: None for key in ours if key in meta["annotations"]},
        }
        assert len(marks["labels"]) == 2
        assert len(marks["annotations"]) == 2
        marks["annotations"][REPORT_ANNOTATION] = report
        link = s.cluster.nodes["node-1"].agent_link
        link.unplug()
        await s.cluster.admin.patch(NODES, "node-1", {"metadata": marks})
        await s.patch({"paused": False})
        await s.until(lambda: s.stages() == {"node-1": "absent", "node-2": "absent"})
        await asyncio.sleep(10)
        link.plug()
        await s.until(lambda: s.runtime() is None)
        assert all(node.daemon.loaded.handlers == ("runc",) for node in s.cluster.nodes.values())

    drive(main)


def test_a_node_whose_report_says_what_its_host_holds_is_waited_for_also_without_its_agent(drive: Drive) -> None:
    """Somebody took the state away while the agent was away, which nobody needs to ask."""

    async def main(s: Any) -> None:
        await s.create(full())
        await s.ready()
        node = s.cluster.nodes["node-1"]
        await node.withdraw_agent()
        await s.cluster.admin.patch(NODES, "node-1", {"metadata": {"annotations": {state_annotation(RUNTIME): None}}})
        await s.delete()
        await s.until(lambda: s.stages() == {"node-1": "absent", "node-2": "absent"})
        await asyncio.sleep(30)
        node.release_agent()
        await s.until(lambda: s.runtime() is None)
        assert all(node.daemon.loaded.handlers == ("runc",) for node in s.cluster.nodes.values())

    drive(main)
