"""Simulated kubelets are slow where real ones are, and the judge sees what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reconciler.api import names
from reconciler.kube.resources import NODES, PODS
from reconciler.kube.transport import MERGE_PATCH
from reconciler.sim import clock, judge, kinds
from reconciler.sim.cluster import Cluster, Options, running

Main = Callable[[Cluster], Coroutine[Any, Any, None]]


def drive(root: Path, main: Main) -> None:
    async def run() -> None:
        options = Options(root=root, clock=clock.VirtualClock(), agent=None, nodes=1, controllers=0)
        async with running(options) as cluster:
            await cluster.nodes["node-1"].daemon.served()
            await main(cluster)

    clock.run(run())


def pod(*arguments: str, grace: int = 1, hook: list[str] | None = None) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "sim/payload:1", "args": list(arguments)}
    if hook:
        container["lifecycle"] = {"preStop": {"exec": {"command": hook}}}
    spec = {"nodeName": "node-1", "restartPolicy": "Never", "terminationGracePeriodSeconds": grace}
    return {"metadata": {"name": "p"}, "spec": {**spec, "containers": [container]}}


def phase(cluster: Cluster) -> str:
    record = cluster.server.store.get(kinds.PODS, ("ns", "p"))
    return "gone" if record is None else (record.object.get("status") or {}).get("phase", "Pending")


async def until(cluster: Cluster, wanted: str, limit: float = 120.0) -> float:
    """Seconds until the pod is in that phase."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while phase(cluster) != wanted:
        assert loop.time() - begun < limit, f"the pod is {phase(cluster)}, not {wanted}"
        await asyncio.sleep(0.05)
    return loop.time() - begun


def test_a_pod_runs_and_its_exit_code_is_its_phase(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.admin.create(PODS, pod("seconds=2", "exit=3"), "ns")
        await until(cluster, "Running")
        await until(cluster, "Failed")
        there = await cluster.admin.get(PODS, "p", "ns")
        state = there.status.container_statuses[0].state.terminated
        assert state is not None
        assert state.exit_code == 3

    drive(tmp_path, main)


def test_an_unknown_image_waits_with_its_reason(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        body = pod()
        body["spec"]["containers"][0]["image"] = "example.org/none"
        await cluster.admin.create(PODS, body, "ns")
        await asyncio.sleep(2)
        there = await cluster.admin.get(PODS, "p", "ns")
        waiting = there.status.container_statuses[0].state.waiting
        assert waiting is not None
        assert waiting.reason == "ImagePullBackOff"
        await cluster.admin.delete(PODS, "p", "ns")
        await until(cluster, "gone")

    drive(tmp_path, main)


def test_a_kill_ends_within_its_grace(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.admin.create(PODS, pod("hang", "ignore-term", grace=5), "ns")
        await until(cluster, "Running")
        await cluster.admin.delete(PODS, "p", "ns")
        assert 4.5 < await until(cluster, "gone") < 6.5

    drive(tmp_path, main)


def test_a_kill_that_hits_an_outage_is_tried_again_only_ten_seconds_later(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        await cluster.admin.create(PODS, pod("hang", "ignore-term", grace=2), "ns")
        await until(cluster, "Running")
        await cluster.admin.delete(PODS, "p", "ns")
        await asyncio.sleep(1)
        await node.outage(3)
        await node.daemon.served()
        assert 7.0 < await until(cluster, "gone") < 25.0
        assert node.kubelet.failed_kills == 1

    drive(tmp_path, main)


def test_a_hook_that_restarts_containerd_never_ends_by_itself(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        await cluster.admin.create(PODS, pod("hang", hook=["restart"]), "ns")
        await until(cluster, "Running")
        await cluster.admin.delete(PODS, "p", "ns")
        await asyncio.sleep(300)
        assert phase(cluster) == "Running"
        assert sum(1 for start in node.daemon.starts if start.initiator == "hook") > 10

    drive(tmp_path, main)


def test_a_node_is_not_ready_when_cri_has_been_away_for_half_a_minute(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        await node.daemon.stop()
        await asyncio.sleep(20)
        ready = (await cluster.admin.get(NODES, "node-1")).status.conditions[0]
        assert ready.status == "True"
        await asyncio.sleep(20)
        ready = (await cluster.admin.get(NODES, "node-1")).status.conditions[0]
        assert ready.status == "False"

    drive(tmp_path, main)


def test_the_judge_finds_nothing_on_an_untouched_cluster(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        assert judge.left_behind(cluster, judge.look(cluster)) == []

    drive(tmp_path, main)


def test_the_judge_finds_every_kind_of_leftover(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        before = judge.look(cluster)
        node = cluster.nodes["node-1"]
        (node.root / "opt/left").write_text("x")
        with (node.root / "etc/containerd/config.toml").open("a") as file:
            file.write("# more\n")
        meta = {"labels": {"foreign": "yes"}, "annotations": {names.state_annotation("kata"): "{}"}}
        await cluster.admin.patch(NODES, "node-1", {"metadata": meta}, content_type=MERGE_PATCH)
        body = pod("hang")
        body["metadata"]["labels"] = {names.COMPONENT_LABEL: names.COMPONENT_PHASE}
        await cluster.admin.create(PODS, body, "ns")
        await until(cluster, "Running")
        found = judge.left_behind(cluster, before)
        assert [line for line in found if "pod " not in line] == [
            "node-1: label foreign is 'yes', it was None",
            "node-1: annotation state.runtime-reconciler.io/kata is left",
            "node-1: /etc/containerd/config.toml is not as it was",
            "node-1: /opt/left is left",
            "node-1: the sandbox of ns/p is still ready",
        ]
        assert "phase pod p is left" in found

    drive(tmp_path, main)
