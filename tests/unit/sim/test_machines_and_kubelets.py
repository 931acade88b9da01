"""What becomes of machines that fall silent, kubelets that begin anew, and payloads that go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.api import names
from reconciler.kube.resources import NODES, PODS
from reconciler.sim import clock, kinds
from reconciler.sim.cluster import Cluster, Options, running

Main = Callable[[Cluster], Coroutine[Any, Any, None]]


def drive(root: Path, main: Main) -> None:
    async def run() -> None:
        options = Options(root=root, clock=clock.VirtualClock(), agent=None, nodes=1, controllers=0)
        async with running(options) as cluster:
            await cluster.nodes["node-1"].daemon.served()
            await main(cluster)

    clock.run(run())


def ready(cluster: Cluster) -> str:
    record = cluster.server.store.get(kinds.NODES, ("", "node-1"))
    assert record is not None
    return str(next(c for c in record.object["status"]["conditions"] if c["type"] == "Ready")["status"])


async def phase_pod(cluster: Cluster, *arguments: str, grace: int = 1) -> None:
    spec = {
        "nodeName": "node-1",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "main", "image": "sim/payload:1", "args": list(arguments)}],
    }
    labels = {names.COMPONENT_LABEL: names.COMPONENT_PHASE}
    await cluster.admin.create(PODS, {"metadata": {"name": "p", "labels": labels}, "spec": spec}, "ns")


def test_a_machine_without_power_is_unknown_after_40_s_and_ready_again_when_it_is_back(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.power_off("node-1")
        await asyncio.sleep(38)
        assert ready(cluster) == "True"
        await asyncio.sleep(10)
        assert ready(cluster) == "Unknown"
        cluster.power_on("node-1")
        await asyncio.sleep(5)
        assert ready(cluster) == "True"

    drive(tmp_path, main)


def test_a_kubelet_that_was_cut_off_says_ready_again_by_itself(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        node.kubelet_link.cut = True
        await asyncio.sleep(50)
        assert ready(cluster) == "Unknown"
        node.kubelet_link.cut = False
        await asyncio.sleep(3)
        assert ready(cluster) == "True"

    drive(tmp_path, main)


def test_a_kubelet_registers_its_node_when_it_starts_and_not_before(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        before = (await cluster.admin.get(NODES, "node-1")).metadata.uid
        await cluster.admin.delete(NODES, "node-1")
        await asyncio.sleep(60)
        assert cluster.server.store.get(kinds.NODES, ("", "node-1")) is None
        await node.restart_kubelet()
        assert (await cluster.admin.get(NODES, "node-1")).metadata.uid not in ("", before)

    drive(tmp_path, main)


def test_a_kubelet_whose_restart_was_asked_for_by_one_who_dies_is_restarted(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        asking = asyncio.ensure_future(node.restart_kubelet())
        await asyncio.sleep(0.5)
        asking.cancel()
        await asyncio.sleep(2)
        await phase_pod(cluster, "seconds=1")
        await asyncio.sleep(5)
        assert (await cluster.admin.get(PODS, "p", "ns")).status.phase == "Succeeded"

    drive(tmp_path, main)


def test_two_restarts_of_a_kubelet_at_once_leave_one_kubelet(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        await asyncio.gather(node.restart_kubelet(), node.restart_kubelet())
        await phase_pod(cluster, "seconds=1")
        await asyncio.sleep(5)
        assert len(node.runtime.processes) == 1

    drive(tmp_path, main)


def test_work_on_a_machine_ends_with_its_power(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        outage = asyncio.ensure_future(node.do(node.outage(30)))
        await asyncio.sleep(5)
        await cluster.power_off("node-1")
        await outage
        assert [start.initiator for start in node.daemon.starts] == ["boot"]
        await node.do(node.outage(30))
        assert [start.initiator for start in node.daemon.starts] == ["boot"]
        assert not cluster.is_on("node-1")
        cluster.power_on("node-1")
        assert cluster.is_on("node-1")

    drive(tmp_path, main)


def test_a_twist_befalls_one_container_of_a_phase_pod_alone(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        node.runtime.twists.append(lambda behaviour: replace(behaviour, oom=True))
        body = {
            "metadata": {"name": "other"},
            "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "sim/payload:1"}]},
        }
        await cluster.admin.create(PODS, body, "ns")
        await asyncio.sleep(5)
        assert (await cluster.admin.get(PODS, "other", "ns")).status.phase == "Succeeded"
        await phase_pod(cluster)
        await asyncio.sleep(5)
        there = await cluster.admin.get(PODS, "p", "ns")
        ended = there.status.container_statuses[0].state.terminated
        assert there.status.phase == "Failed"
        assert ended is not None
        assert (ended.exit_code, ended.reason) == (137, "OOMKilled")
        assert node.runtime.twists == []

    drive(tmp_path, main)


def test_a_hook_of_a_twisted_payload_restarts_containerd_at_each_kill(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        node.runtime.twists.append(lambda behaviour: replace(behaviour, hook_restarts=True))
        await phase_pod(cluster, "hang")
        await asyncio.sleep(3)
        await cluster.admin.delete(PODS, "p", "ns")
        await asyncio.sleep(120)
        assert [start.initiator for start in node.daemon.starts][:3] == ["boot", "hook", "hook"]

    drive(tmp_path, main)


def test_a_payload_may_say_twice_that_it_is_done(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        node.runtime.twists.append(lambda behaviour: replace(behaviour, again=10.0))
        await phase_pod(cluster, "label=done=yes", "hang")
        await asyncio.sleep(3)
        assert (await cluster.admin.get(NODES, "node-1")).metadata.labels["done"] == "yes"
        await cluster.admin.patch(NODES, "node-1", {"metadata": {"labels": {"done": None}}})
        await asyncio.sleep(10)
        assert (await cluster.admin.get(NODES, "node-1")).metadata.labels["done"] == "yes"

    drive(tmp_path, main)


def test_a_daemon_without_its_cri_plugin_is_not_the_fault_of_its_configuration(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        daemon = cluster.nodes["node-1"].daemon
        daemon.without_cri = "no inotify instances left"
        await daemon.restart("agent")
        await asyncio.sleep(2)
        assert (daemon.unit.active, daemon.serving) == ("active", False)
        assert (daemon.starts[-1].error, daemon.starts[-1].outside) == ("no inotify instances left", True)
        daemon.without_cri = ""
        await daemon.restart("agent")
        await daemon.served()
        assert (daemon.starts[-1].error, daemon.starts[-1].outside) == ("", False)

    drive(tmp_path, main)


def test_a_new_version_runs_from_the_next_start_on(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        node = cluster.nodes["node-1"]
        node.daemon.installed = "1.7.34"
        assert (await node.cri().version(timeout=1)).runtime_version == "1.6.20"
        await node.daemon.restart("admin")
        await node.daemon.served()
        assert (await node.cri().version(timeout=1)).runtime_version == "1.7.34"

    drive(tmp_path, main)


def test_machines_may_leave_for_good(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.add_node("node-2")
        await cluster.nodes["node-2"].up()
        await cluster.remove_node("node-2")
        assert [*cluster.nodes] == ["node-1"]
        await cluster.delete_node("node-2")
        assert cluster.server.store.get(kinds.NODES, ("", "node-2")) is None
        await asyncio.sleep(100)

    drive(tmp_path, main)


def test_what_is_begun_while_a_cluster_ends_ends_with_it(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        async def off_and_on() -> None:
            await cluster.power_off("node-1")
            try:
                await asyncio.sleep(1000)
            finally:
                cluster.power_on("node-1")

        cluster.spawn(off_and_on())
        await asyncio.sleep(1)

    drive(tmp_path, main)
