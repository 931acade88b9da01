"""Each invariant catches a planted defect, and says nothing where a cause outside excuses it.

The world is a cluster without controllers and agents; what they would do wrong is done under their names.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import structs

from reconciler.api import names
from reconciler.api.node import NodeState, Problem, Stage, encode
from reconciler.controller import pods
from reconciler.cri.api import Sandbox
from reconciler.kube.client import Client
from reconciler.kube.resources import CONTROLLERREVISIONS, LEASES, NODERUNTIMES, NODES, PODS, RUNTIMECLASSES
from reconciler.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from reconciler.sim import clock, kinds
from reconciler.sim.cluster import Cluster, Options, running
from reconciler.sim.invariants import INVARIANTS, Observer, describe, rest
from reconciler.sim.judge import LOCK
from reconciler.sim.loops import HANDLER, RUNTIME, manifest
from reconciler.sim.node import CONFIG, SimNode
from reconciler.sim.payload import Behaviour

UID = "the-uid"
MOMENT = datetime(2026, 1, 1, 1, tzinfo=UTC)
REVISION = "r1"
STEP = "rename /etc/containerd/config.toml"
OURS = "# runtime-reconciler: begin kata\n{}\n# runtime-reconciler: end kata\n"
GOOD = OURS.format(
    f'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{HANDLER}]\nruntime_type = "io.containerd.kata.v2"'
)
GOOD_CONFIG = CONFIG + GOOD
BAD = OURS.format("this is no TOML")


class Planted:
    """The world, and clients that pass for ours."""

    def __init__(self, cluster: Cluster, invariant: str) -> None:
        self.cluster = cluster
        self.observer = Observer(cluster, [one for one in INVARIANTS if one.name == invariant])
        self.controller = Client(cluster.connect("controller:controller-1"), rng=random.Random(1))
        self.agent = Client(cluster.connect("agent:node-1"), rng=random.Random(2))
        self.node: SimNode = cluster.nodes["node-1"]

    @property
    def said(self) -> list[str]:
        return [breach.what for breach in self.observer.broken]

    async def owner(self) -> str:
        """A NodeRuntime with our finalizer; its UID."""
        body = manifest(unavailable=1)
        body["metadata"]["finalizers"] = [names.FINALIZER]
        made = await self.cluster.admin.create(NODERUNTIMES, body)
        return made.metadata.uid

    async def lead(self) -> None:
        """Take the Lease, or renew it."""
        spec = {"holderIdentity": "controller-1", "leaseDurationSeconds": 10}
        body = {
            "metadata": {"name": names.LEASE_NAME},
            "spec": {**spec, "renewTime": self.node.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
        }
        if self.cluster.server.store.get(kinds.LEASES, (names.NAMESPACE, names.LEASE_NAME)) is None:
            await self.cluster.admin.create(LEASES, body, names.NAMESPACE)
        else:
            await self.cluster.admin.patch(LEASES, names.LEASE_NAME, body, names.NAMESPACE)

    async def keep(self) -> None:
        """The revision, as a controller keeps it."""
        body = {
            "metadata": {
                "name": "kata-r1",
                "labels": {names.RUNTIME_LABEL: RUNTIME},
                "annotations": {names.REVISION_ANNOTATION: REVISION},
            },
            "data": {"phases": manifest()["spec"]["phases"], "handlers": [{"name": HANDLER}]},
            "revision": 1,
        }
        await self.cluster.admin.create(CONTROLLERREVISIONS, body, names.NAMESPACE)

    def state(self, stage: Stage, *, uid: str = UID, attempt: int = 1, installed: str = "") -> NodeState:
        since = datetime(2026, 1, 1, tzinfo=UTC)
        return NodeState(uid=uid, stage=stage, target=REVISION, attempt=attempt, since=since, installed=installed)

    async def move(self, state: NodeState, node: str = "node-1") -> None:
        annotations = {names.state_annotation(RUNTIME): encode(state)}
        await self.controller.patch(NODES, node, {"metadata": {"annotations": annotations}})

    async def make_pod(self, stage: Stage = Stage.INSTALL, *, attempt: int = 1) -> Any:
        state = self.state(stage, attempt=attempt)
        body = {
            "metadata": {
                "name": pods.pod_name(RUNTIME, "node-1", state),
                "labels": {
                    names.COMPONENT_LABEL: names.COMPONENT_PHASE,
                    names.RUNTIME_LABEL: RUNTIME,
                    names.PHASE_LABEL: str(stage),
                },
                "annotations": {
                    names.UID_ANNOTATION: UID,
                    names.REVISION_ANNOTATION: REVISION,
                    names.ATTEMPT_ANNOTATION: str(attempt),
                },
            },
            "spec": {"nodeName": "nowhere", "containers": [{"name": "payload", "image": "sim/payload:1"}]},
        }
        return await self.controller.create(PODS, body, names.NAMESPACE)

    async def run(self, pod: Any, *, seconds: float = 1.0) -> None:
        """A process of the pod starts on node-1, whatever kubelet thinks."""
        labels = {names.COMPONENT_LABEL: names.COMPONENT_PHASE}
        meta = pod.metadata
        sandbox = Sandbox("", meta.name, meta.namespace, meta.uid, ready=True, labels=labels)
        made = await self.node.runtime.create_sandbox(sandbox)
        await self.node.runtime.run_container(made, "payload", Behaviour(seconds=seconds))

    async def restart(self) -> None:
        """As an agent does it."""
        await self.node.daemon.restart("agent")
        await self.node.daemon.served()

    async def use(self) -> None:
        """A pod of somebody's runs with the handler."""
        await self.cluster.admin.create(RUNTIMECLASSES, {"metadata": {"name": RUNTIME}, "handler": HANDLER})
        containers = [{"name": "main", "image": "sim/payload:1", "args": ["hang"]}]
        spec = {"nodeName": "node-1", "runtimeClassName": RUNTIME, "containers": containers}
        begun = asyncio.Event()
        self.node.runtime.lived.append(lambda process: begun.set())
        await self.cluster.admin.create(PODS, {"metadata": {"name": "job"}, "spec": spec}, "default")
        await begun.wait()

    def write(self, text: str, *, traced: bool = True) -> None:
        """As an agent does it, or (not traced) as an admin does."""
        if traced:
            for told in self.node.on_step:
                told(STEP)
        (self.node.root / "etc/containerd/config.toml").write_text(text)


Main = Callable[[Planted], Coroutine[Any, Any, None]]
Plant = Callable[[str, Main], list[str]]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """`plant(invariant, main)` runs `main` on two nodes under the eye of that invariant; what it said."""

    def run(invariant: str, main: Main) -> list[str]:
        async def body() -> list[str]:
            options = Options(root=tmp_path, clock=clock.VirtualClock(), agent=None, nodes=2, controllers=0)
            async with running(options) as cluster:
                for node in cluster.nodes.values():
                    await node.daemon.served()
                planted = Planted(cluster, invariant)
                await main(planted)
                return planted.said

        return clock.run(body())

    return run


def test_every_invariant_has_a_name_of_its_own_and_says_what_must_hold() -> None:
    lines = describe().splitlines()
    assert len({line.split(":")[0] for line in lines}) == len(INVARIANTS) == 20
    assert lines[0] == "slots: Never more nodes in work than the spec allowed when their slots were taken."


def test_slots_more_on_the_list_than_allowed(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.owner()
        body = {"status": {"inWork": ["node-1", "node-2"]}}
        await p.controller.patch(NODERUNTIMES, RUNTIME, body, subresource="status")

    assert plant("slots", main) == ["kata: 2 nodes in status.inWork, 1 allowed: node-1, node-2"]


def test_slots_two_nodes_at_work_although_the_list_is_short(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        uid = await p.owner()
        for node in ("node-1", "node-2"):
            await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": [node]}}, subresource="status")
            await p.move(p.state(Stage.INSTALL, uid=uid), node)

    assert plant("slots", main) == ["kata: 2 nodes in work, 1 allowed: node-1, node-2"]


@pytest.mark.parametrize(("microseconds", "count"), [(1, 0), (1000, 1)])
def test_slots_a_node_gives_its_own_back_at_the_moment_of_its_deadline(
    plant: Plant, microseconds: int, count: int
) -> None:
    async def main(p: Planted) -> None:
        state = p.state(Stage.INSTALL, uid=await p.owner())
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-1"]}}, subresource="status")
        await p.move(structs.replace(state, deadline=MOMENT + timedelta(microseconds=microseconds)))
        with patch.object(clock.VirtualClock, "now", lambda self: MOMENT):
            await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-2"]}}, subresource="status")
            await p.move(state, "node-2")

    assert len(plant("slots", main)) == count


@pytest.mark.parametrize(
    ("passed", "said"), [(True, []), (False, ["kata: 2 nodes in work, 1 allowed: node-1, node-2"])]
)
def test_slots_a_stuck_node_that_gave_its_own_back_waits_with_a_new_goal(
    plant: Plant, passed: bool, said: list[str]
) -> None:
    async def main(p: Planted) -> None:
        state = p.state(Stage.INSTALL, uid=await p.owner())
        moment = p.cluster.options.clock.now() + timedelta(seconds=1)
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-1"]}}, subresource="status")
        await p.move(structs.replace(state, deadline=moment))
        await asyncio.sleep(2 if passed else 0)
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-2"]}}, subresource="status")
        await p.move(structs.replace(state, target="r2", deadline=moment + timedelta(hours=1)))
        await p.move(state, "node-2")

    assert plant("slots", main) == said


@pytest.mark.parametrize(("repairs", "said"), [(3, []), (2, ["kata: 2 nodes in work, 1 allowed: node-1, node-2"])])
def test_slots_a_node_whose_repairs_are_used_up_gives_its_own_back(plant: Plant, repairs: int, said: list[str]) -> None:
    async def main(p: Planted) -> None:
        state = p.state(Stage.VERIFY, uid=await p.owner())
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-1"]}}, subresource="status")
        await p.move(structs.replace(state, repairs=(p.cluster.options.clock.now(),) * repairs))
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-2"]}}, subresource="status")
        await p.move(state, "node-2")

    assert plant("slots", main) == said


@pytest.mark.parametrize(("known", "said"), [(0, []), (120, ["kata: 2 nodes in work, 1 allowed: node-1, node-2"])])
def test_slots_a_node_whose_state_cannot_be_read_gives_its_own_back(plant: Plant, known: int, said: list[str]) -> None:
    async def main(p: Planted) -> None:
        state = p.state(Stage.CONFIGURE, uid=await p.owner())
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-1"]}}, subresource="status")
        await p.move(state)
        for text in ("{", encode(state)):
            body = {"metadata": {"annotations": {names.state_annotation(RUNTIME): text}}}
            await p.cluster.admin.patch(NODES, "node-1", body)
        await asyncio.sleep(known)
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"inWork": ["node-2"]}}, subresource="status")
        await p.move(state, "node-2")

    assert plant("slots", main) == said


def test_slots_a_node_leaves_rest_without_one(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.move(p.state(Stage.INSTALL, uid=await p.owner()))

    assert plant("slots", main) == ["node-1: kata went to install without a slot"]


def test_our_starts_our_part_does_not_load(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        p.write(CONFIG + BAD)
        await p.node.daemon.restart("agent")

    (said,) = plant("our-starts", main)
    assert said.startswith("node-1: the agent started containerd on a configuration that fails: ")


@pytest.mark.parametrize("text", ["nonsense", CONFIG + "nonsense\n" + GOOD])
def test_our_starts_are_not_blamed_for_what_an_admin_wrote(plant: Plant, text: str) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        p.write(text, traced=False)
        await p.node.daemon.restart("agent")
        assert p.node.daemon.starts[-1].error

    assert plant("our-starts", main) == []


def test_one_restart_of_a_daemon_that_serves_without_a_change(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        await p.restart()
        assert p.said == []
        await p.node.daemon.restart("agent")

    assert plant("one-restart", main) == [
        "node-1: the agent restarted a containerd that served, and had changed nothing since its start"
    ]


@pytest.mark.parametrize(("text", "count"), [(CONFIG, 0), (GOOD_CONFIG.replace("  ", "") + "# a note\n", 1)])
def test_one_restart_of_a_daemon_that_runs_on_what_others_have_changed(plant: Plant, text: str, count: int) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        await p.restart()
        p.write(text, traced=False)
        await p.restart()

    assert len(plant("one-restart", main)) == count


def test_a_daemon_that_the_start_limit_left_failed_may_be_started(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        while await p.node.daemon.restart("payload") == "done":
            await p.node.daemon.served()
        p.node.daemon.reset_failed()
        await p.restart()

    assert plant("one-restart", main) == []


def test_one_restart_per_change_and_one_per_undo(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.move(p.state(Stage.CONFIGURE))
        for text in (GOOD_CONFIG, CONFIG, GOOD_CONFIG):
            p.write(text)
            await p.restart()

    (said,) = plant("one-restart", main)
    assert said.startswith("node-1: 3 restarts by the agent for ('kata configure r1 attempt 1'")


def test_one_actor_two_payloads(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        for attempt in (1, 2):
            await p.run(await p.make_pod(attempt=attempt))

    (said,) = plant("one-actor", main)
    assert said.startswith("node-1: 2 phase pods run at once: rr-kata-install-")


@pytest.mark.parametrize(("by_admin", "wait", "count"), [(True, 40, 0), (True, 46, 1), (False, 0, 1)])
def test_one_actor_a_payload_whose_pod_was_deleted_by_force(
    plant: Plant, by_admin: bool, wait: float, count: int
) -> None:
    async def main(p: Planted) -> None:
        p.observer.around.agent_since["node-1"] = -1000.0
        pod = await p.make_pod()
        client = p.cluster.admin if by_admin else p.controller
        await client.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace_seconds=0)
        await asyncio.sleep(wait)
        await p.run(pod)
        await p.run(await p.make_pod())

    said = plant("one-actor", main)
    assert len(said) == count
    assert all(line.startswith("node-1: 2 phase pods run at once: rr-kata-install-") for line in said)


def test_one_actor_an_agent_changes_the_configuration_beside_a_payload(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.run(await p.make_pod())
        p.write(CONFIG)
        assert p.said == []  # no work of its own: the guard
        await p.move(p.state(Stage.CONFIGURE))
        p.write(GOOD_CONFIG)

    (said,) = plant("one-actor", main)
    assert said.startswith(f"node-1: the agent does `{STEP}` while rr-kata-install-")


def test_barrier_is_not_asked_of_one_whose_watch_came_in_pieces(plant: Plant) -> None:
    """What it knows by now nobody can tell who does not put the pieces together as it does."""

    async def main(p: Planted) -> None:
        condition = {"type": names.SERVING_CONDITION, "status": "False"}
        body = {"status": {"conditions": [condition]}}
        await p.agent.patch(NODES, "node-1", body, subresource="status", content_type=STRATEGIC_MERGE_PATCH)
        await p.controller.get(NODES, "node-1")
        for told in p.cluster.taps.heard:
            told("controller:controller-1", "WATCH", "/api/v1/nodes", b'{"type":"MODIFIED","object":{"meta')
        await p.controller.create(PODS, phase_pod_on("node-1"), names.NAMESPACE)

    assert plant("barrier", main) == []


@pytest.mark.parametrize(("heard", "count"), [(True, 1), (False, 0)])
def test_barrier_a_pod_is_made_by_one_that_knew(plant: Plant, heard: bool, count: int) -> None:
    async def main(p: Planted) -> None:
        condition = {"type": names.SERVING_CONDITION, "status": "False"}
        body = {"status": {"conditions": [condition]}}
        await p.agent.patch(NODES, "node-1", body, subresource="status", content_type=STRATEGIC_MERGE_PATCH)
        if heard:
            await p.controller.get(NODES, "node-1")
        await p.controller.create(PODS, phase_pod_on("node-1"), names.NAMESPACE)

    said = plant("barrier", main)
    assert (
        said
        == ["node-1: phase pod a was made by controller:controller-1, which knew that ContainerdServing is False"]
        * count
    )


def phase_pod_on(node: str) -> dict[str, Any]:
    labels = {names.COMPONENT_LABEL: names.COMPONENT_PHASE}
    spec = {"nodeName": node, "containers": [{"name": "payload", "image": "sim/payload:1"}]}
    return {"metadata": {"name": "a", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"metadata": {"labels": {"a": None}}}, "changed label a of node-1 from 'b' to None"),
        ({"spec": {"unschedulable": True}}, "changed the cordon of node-1"),
        ({"metadata": {"annotations": {"x": "y"}}}, "changed annotation x of node-1 from None to 'y'"),
    ],
)
def test_foreign_marks_of_a_node(plant: Plant, body: dict[str, Any], said: str) -> None:
    async def main(p: Planted) -> None:
        await p.cluster.admin.patch(NODES, "node-1", {"metadata": {"labels": {"a": "b"}}})
        await p.controller.patch(NODES, "node-1", {"metadata": {"labels": {names.stage_label(RUNTIME): "install"}}})
        await p.controller.patch(NODES, "node-1", body, content_type=MERGE_PATCH)

    assert plant("foreign-marks", main) == [f"controller:controller-1 {said}"]


@pytest.mark.parametrize("known", [True, False])
def test_foreign_marks_a_done_label_that_the_node_keeps_in_mind_may_be_taken_off(plant: Plant, known: bool) -> None:
    async def main(p: Planted) -> None:
        await p.cluster.admin.patch(NODES, "node-1", {"metadata": {"labels": {"vendor/done": "yes"}}})
        signals = ("vendor/done",) if known else ()
        await p.move(structs.replace(p.state(Stage.INSTALL), signals=signals))
        body = {"metadata": {"labels": {"vendor/done": None}}}
        await p.controller.patch(NODES, "node-1", body, content_type=MERGE_PATCH)

    said = "controller:controller-1 changed label vendor/done of node-1 from 'yes' to None"
    assert plant("foreign-marks", main) == ([] if known else [said])


def test_foreign_text_of_the_configuration(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        await p.controller.get(NODES, "node-1")
        assert p.said == []
        p.write(CONFIG.replace("# kept by hand\n", "") + GOOD)
        await p.controller.get(NODES, "node-1")
        p.write(CONFIG)

    assert plant("foreign-text", main) == [
        f"node-1: the agent's `{STEP}` took away or changed what others wrote: ['# kept by hand']"
    ]


def test_foreign_text_that_an_admin_writes_at_the_next_step(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        for told in p.node.on_step:
            told("sync /etc/containerd/config.toml")
        p.write(GOOD_CONFIG + "# a note\n", traced=False)
        await asyncio.sleep(1)
        await p.controller.get(NODES, "node-1")

    assert plant("foreign-text", main) == []


def test_finalizer_last(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.move(p.state(Stage.READY, uid=await p.owner()))
        p.write(GOOD_CONFIG)
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"metadata": {"finalizers": []}})

    assert plant("finalizer-last", main) == [
        "kata: the finalizer went while node-1 carries state.runtime-reconciler.io/kata",
        "kata: the finalizer went while the configuration of node-1 names it",
    ]


@pytest.mark.parametrize(
    ("report", "agent", "count"), [(None, False, 0), ("{", False, 0), ("{}", False, 1), (None, True, 1)]
)
def test_finalizer_last_nobody_knows_of_a_node_without_marks_and_without_an_agent(
    plant: Plant, report: str | None, agent: bool, count: int
) -> None:
    async def main(p: Planted) -> None:
        await p.owner()
        p.write(GOOD_CONFIG)
        await p.cluster.admin.patch(NODES, "node-1", {"metadata": {"annotations": {names.REPORT_ANNOTATION: report}}})
        if agent:
            spec = {"nodeName": "node-1", "containers": [{"name": "agent", "image": "agent:1"}]}
            labels = {names.COMPONENT_LABEL: names.COMPONENT_AGENT}
            body = {"metadata": {"name": "reconciler-agent-node-1", "labels": labels}, "spec": spec}
            await p.cluster.admin.create(PODS, body, names.NAMESPACE)
            status = {"conditions": [{"type": "Ready", "status": "True"}]}
            await p.cluster.admin.patch(
                PODS, "reconciler-agent-node-1", {"status": status}, names.NAMESPACE, subresource="status"
            )
            await asyncio.sleep(3)
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"metadata": {"finalizers": []}})

    said = "kata: the finalizer went while the configuration of node-1 names it"
    assert plant("finalizer-last", main) == [said] * count


@pytest.mark.parametrize(("text", "count"), [(CONFIG, 1), (GOOD_CONFIG, 0)])
def test_claims_ready_without_a_served_handler(plant: Plant, text: str, count: int) -> None:
    async def main(p: Planted) -> None:
        await p.keep()
        await p.move(p.state(Stage.CONFIGURE))
        p.write(text)
        await p.restart()
        await p.move(p.state(Stage.READY, installed=REVISION))

    said = plant("claims", main)
    assert said == ["node-1: kata is called ready, but kata-qemu was not served since it was configured"] * count


def test_claims_counts_that_do_not_add_up(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.owner()
        nodes = {"total": 2, "ready": 1, "updating": 0, "failed": 0, "stuck": 0}
        status = {"observedGeneration": 7, "nodes": nodes, "stages": {"ready": 1}}
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": status}, subresource="status")

    assert plant("claims", main) == [
        "kata: observedGeneration is 7, the generation is 1",
        "kata: stages {'ready': 1} do not add up to 2 nodes",
    ]


@pytest.mark.parametrize(("seconds", "count"), [(20, 0), (40, 1)])
def test_claims_a_node_that_left(plant: Plant, seconds: float, count: int) -> None:
    async def main(p: Planted) -> None:
        uid = await p.owner()
        for node in ("node-1", "node-2"):
            await p.move(p.state(Stage.READY, uid=uid), node)
        p.observer.around.led_since = -1000.0
        await p.cluster.admin.delete(NODES, "node-2")
        await asyncio.sleep(seconds)
        status = {"nodes": {"total": 2, "ready": 2}, "stages": {"ready": 2}}
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": status}, subresource="status")

    assert plant("claims", main) == ["kata: 2 nodes are called ready, 1 can be"] * count


@pytest.mark.parametrize(
    ("installed", "seconds", "count"),
    [
        ([REVISION], 0, 0),
        (["r0"], 0, 1),
        ([REVISION, "r0"], 100, 0),
        ([REVISION, "r0"], 130, 1),
    ],
)
def test_claims_a_node_with_another_revision(plant: Plant, installed: list[str], seconds: float, count: int) -> None:
    async def main(p: Planted) -> None:
        uid = await p.owner()
        for revision in installed:
            await p.move(p.state(Stage.READY, uid=uid, installed=revision))
        p.observer.around.led_since = -1000.0
        await asyncio.sleep(seconds)
        status = {"revision": REVISION, "nodes": {"total": 2, "ready": 2}, "stages": {"ready": 2}}
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": status}, subresource="status")

    assert plant("claims", main) == ["kata: 2 nodes are called ready, 1 can be"] * count


def test_claims_a_node_of_another_noderuntime_of_that_name(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.owner()
        await p.move(p.state(Stage.READY, installed=REVISION))
        p.observer.around.led_since = -1000.0
        status = {"revision": REVISION, "nodes": {"total": 2, "ready": 2}, "stages": {"ready": 2}}
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": status}, subresource="status")

    assert plant("claims", main) == ["kata: 2 nodes are called ready, 1 can be"]


@pytest.mark.parametrize(("text", "count"), [(GOOD_CONFIG, 1), (CONFIG, 0)])
def test_binaries_last(plant: Plant, text: str, count: int) -> None:
    async def main(p: Planted) -> None:
        p.write(text)
        await p.run(await p.make_pod(Stage.UNINSTALL))

    said = plant("binaries-last", main)
    assert said == ["node-1: uninstall of kata starts while the configuration still names its handlers"] * count


@pytest.mark.parametrize(
    ("seconds", "ready", "forced", "count"),
    [(40, True, False, 1), (20, True, False, 0), (40, False, False, 0), (40, True, True, 0)],
)
def test_in_use_a_handler_goes_while_a_pod_runs_with_it(
    plant: Plant, seconds: float, ready: bool, forced: bool, count: int
) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        await p.restart()
        if ready:
            await p.move(p.state(Stage.READY, installed=REVISION))
        await p.use()
        await asyncio.sleep(seconds)
        await p.move(structs.replace(p.state(Stage.UNCONFIGURE, installed=REVISION), forced=forced))
        p.write(CONFIG)
        await p.restart()

    assert plant("in-use", main) == [f"node-1: the agent took {HANDLER} away while default/job uses it"] * count


def test_in_use_an_admin_takes_a_handler_away(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        p.write(GOOD_CONFIG)
        await p.restart()
        await p.move(p.state(Stage.READY, installed=REVISION))
        await p.use()
        await asyncio.sleep(40)
        p.write(CONFIG, traced=False)
        p.write(CONFIG + "# a note\n")
        await p.restart()

    assert plant("in-use", main) == []


@pytest.mark.parametrize(("held", "count"), [(False, 1), (True, 0)])
def test_a_change_without_the_lock_of_the_host(plant: Plant, held: bool, count: int) -> None:
    async def main(p: Planted) -> None:
        path = p.node.root / LOCK
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            if held:
                fcntl.flock(file, fcntl.LOCK_EX)
            p.write(GOOD_CONFIG)

    assert plant("locked", main) == [f"node-1: the agent's `{STEP}` was taken without the host's lock"] * count


def test_evidence_a_stage_that_nobody_has_done(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.keep()
        for stage in (Stage.INSTALL, Stage.CONFIGURE, Stage.VERIFY):
            await p.move(p.state(stage))

    assert plant("evidence", main) == [
        "node-1: kata went from install to configure, but no payload of revision r1, attempt 1 is done",
        "node-1: kata went from configure to verify without the agent's answer to revision r1, attempt 1",
    ]


@pytest.mark.parametrize("owned", [True, False])
def test_evidence_a_removal_is_passed_over_whose_revision_somebody_deleted(plant: Plant, owned: bool) -> None:
    async def main(p: Planted) -> None:
        uid = await p.owner() if owned else UID
        await p.keep()
        await p.move(p.state(Stage.UNINSTALL, uid=uid))
        await p.cluster.admin.delete(CONTROLLERREVISIONS, "kata-r1", names.NAMESPACE)
        await p.move(p.state(Stage.POST_UNINSTALL, uid=uid))

    said = "node-1: kata went from uninstall to post-uninstall, but no payload of revision r1, attempt 1 is done"
    assert plant("evidence", main) == ([said] if owned else [])


def test_once_two_pods_of_one_attempt(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        pod = await p.make_pod()
        await p.run(pod)
        await p.controller.delete(PODS, pod.metadata.name, names.NAMESPACE, uid=pod.metadata.uid, grace_seconds=0)
        await p.make_pod()

    assert plant("once", main) == [
        "nowhere: a second phase pod for install of kata, revision r1, attempt 1, whose payload had run"
    ]


def test_attempts_a_fourth_run(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        for attempt in (1, 2, 3, 4):
            await p.run(await p.make_pod(attempt=attempt))

    assert plant("attempts", main) == ["nowhere: 4 runs of install of kata, revision r1"]


@pytest.mark.parametrize(("told", "count"), [(False, 1), (True, 0)])
def test_deadlines_a_stage_of_which_nobody_says_that_it_is_late(plant: Plant, told: bool, count: int) -> None:
    async def main(p: Planted) -> None:
        state = p.state(Stage.INSTALL, uid=await p.owner())
        since = p.cluster.options.clock.now()
        await p.move(structs.replace(state, since=since, deadline=since + timedelta(seconds=60)))
        if told:
            late = {"failed": [{"node": "node-1", "stage": "install", "reason": "PayloadTimedOut"}]}
            await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": late}, subresource="status")
        for _ in range(60):
            await p.lead()
            await asyncio.sleep(4)

    said = plant("deadlines", main)
    assert said == ["node-1: kata is in install, attempt 1, past its deadline, and nobody says so"] * count


def test_only_the_leader_writes(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.controller.patch(NODES, "node-1", {"metadata": {"labels": {"a": "b"}}})

    assert plant("only-the-leader", main) == [
        "controller:controller-1 sent PATCH /api/v1/nodes/node-1, but the Lease was nobody's, renewed 0.3 s ago"
    ]


def test_a_leader_whose_lease_somebody_deleted_has_the_rest_of_its_time(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        lease = {"metadata": {"name": names.LEASE_NAME}, "spec": {"holderIdentity": "controller-1-1"}}
        await p.controller.create(LEASES, lease, names.NAMESPACE)
        await p.cluster.admin.delete(LEASES, names.LEASE_NAME, names.NAMESPACE)
        other = Client(p.cluster.connect("controller:controller-2"), rng=random.Random(3))
        lease["spec"] = {"holderIdentity": "controller-2-1"}
        await other.create(LEASES, lease, names.NAMESPACE)
        await p.controller.patch(NODES, "node-1", {"metadata": {"labels": {"a": "b"}}})
        await other.patch(NODES, "node-1", {"metadata": {"labels": {"a": "c"}}})
        assert p.said == []
        await asyncio.sleep(11)
        await p.controller.patch(NODES, "node-1", {"metadata": {"labels": {"a": "d"}}})

    assert plant("only-the-leader", main) == [
        "controller:controller-1 sent PATCH /api/v1/nodes/node-1, "
        "but the Lease was controller-2-1's, renewed 11.0 s ago"
    ]


def test_a_write_to_a_node_is_fenced(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        node = await p.controller.get(NODES, "node-1")
        fenced = {"resourceVersion": node.metadata.resource_version, "labels": {"a": "b"}}
        await p.controller.patch(NODES, "node-1", {"metadata": fenced})
        assert p.said == []
        await p.controller.patch(NODES, "node-1", {"metadata": {"labels": {"a": "c"}}})

    assert plant("fenced", main) == [
        "controller:controller-1 wrote to node-1 without a precondition: PATCH /api/v1/nodes/node-1"
    ]


def test_load_is_bounded(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        for _ in range(300):
            await p.agent.get(NODES, "node-1")

    assert plant("bounded-load", main) == [
        "agent:node-1 sent more than 240 requests within a minute, the last one GET /api/v1/nodes/node-1"
    ]


def test_text_is_bounded(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        annotations = {names.state_annotation(RUNTIME): "n" * 5121}
        await p.controller.patch(NODES, "node-1", {"metadata": {"annotations": annotations}})

    told = f"node-1: state.runtime-reconciler.io/kata has 5121 characters, 5120 are allowed: {'n' * 80}…"
    assert plant("bounded-text", main) == [told]


def test_text_of_an_error_is_bounded(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.move(structs.replace(p.state(Stage.INSTALL), error=Problem("PayloadFailed", "n" * 257)))

    told = f"node-1: error of kata has 257 characters, 256 are allowed: {'n' * 80}…"
    assert plant("bounded-text", main) == [told]


def test_rest_is_disturbed_by_a_write_and_by_a_restart(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        assert await rest(p.cluster, 10) == []
        p.cluster.spawn(later(p))
        assert await rest(p.cluster, 10) == [
            "no rest: agent:node-1 wrote to nodes node-1, 2 times in 600 s",
            "no rest: containerd of node-1 was started, 1 times in 600 s",
        ]

    async def later(p: Planted) -> None:
        for value in "ab":
            await asyncio.sleep(200)
            await p.agent.patch(NODES, "node-1", {"metadata": {"labels": {"a": value}}})
        await p.node.daemon.restart("agent")

    plant("fenced", main)


def test_rest_does_not_come_while_a_node_is_at_work_and_nobody_says_why(plant: Plant) -> None:
    async def main(p: Planted) -> None:
        await p.owner()
        await p.move(p.state(Stage.INSTALL))
        assert await rest(p.cluster, 30) == ["node-1: kata is in stage install, attempt 1, and nobody says why"]
        failed = {"node": "node-1", "stage": "install", "reason": "PayloadFailed"}
        await p.controller.patch(NODERUNTIMES, RUNTIME, {"status": {"failed": [failed]}}, subresource="status")
        assert await rest(p.cluster, 30) == []

    plant("fenced", main)
