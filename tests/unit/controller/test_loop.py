"""The controller against the embedded API server: a scripted node answers as kubelet and agent would."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.api.meta import Node
from reconciler.api.node import AGENT_STAGES, Report, Stage, WorkReport, WorkResult, encode
from reconciler.controller import Controller
from reconciler.controller.world import report_of, states
from reconciler.kube.client import Client
from reconciler.kube.errors import NotFound
from reconciler.kube.resources import CONTROLLERREVISIONS, NODERUNTIMES, NODES, PODS, RUNTIMECLASSES
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

NS = names.NAMESPACE
TICK = 0.02


def condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-02T03:04:05Z"}


class FakeNode:
    """Kubelet and agent of one node, both instant."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.exits: dict[str, int] = {}
        self.hangs: set[str] = set()
        """Phases whose payload does not end by itself."""
        self.handlers = {"runc"}
        self.ran: list[str] = []

    async def join(self, labels: dict[str, str]) -> None:
        status = {
            "conditions": [condition("Ready"), condition(names.SERVING_CONDITION)],
            "nodeInfo": {"machineID": "m"},
        }
        await self.client.create(NODES, {"metadata": {"name": self.name, "labels": labels}, "status": status})
        await self.client.patch(NODES, self.name, {"status": status}, subresource="status")
        pod = {
            "metadata": {"name": f"agent-{self.name}", "labels": {names.COMPONENT_LABEL: names.COMPONENT_AGENT}},
            "spec": {"nodeName": self.name, "containers": [{"name": "agent", "image": "x"}]},
        }
        await self.client.create(PODS, pod, NS)
        ready = {"status": {"phase": "Running", "conditions": [condition("Ready")]}}
        await self.client.patch(PODS, f"agent-{self.name}", ready, NS, subresource="status")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            await self._kubelet()
            await self._agent()

    async def _kubelet(self) -> None:
        pods, _ = await self.client.list(PODS, NS, field_selector=f"spec.nodeName={self.name}")
        for pod in pods:
            phase = pod.metadata.labels.get(names.PHASE_LABEL, "")
            if not phase:
                continue
            if pod.metadata.deletion_timestamp is not None:
                await self.client.delete(PODS, pod.metadata.name, NS, uid=pod.metadata.uid, grace_seconds=0)
            elif pod.status.phase in ("", "Pending") and phase not in self.hangs:
                code = self.exits.get(phase, 0)
                self.ran.append(phase)
                now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
                ended = {
                    "exitCode": code,
                    "startedAt": now,
                    "finishedAt": now,
                    "reason": "Error" if code else "Completed",
                }
                status = {
                    "phase": "Failed" if code else "Succeeded",
                    "containerStatuses": [{"name": "payload", "state": {"terminated": ended}}],
                }
                await self.client.patch(PODS, pod.metadata.name, {"status": status}, NS, subresource="status")

    async def _agent(self) -> None:
        node = await self.client.get(NODES, self.name)
        before = report_of(node)
        pods, _ = await self.client.list(PODS, NS, field_selector=f"spec.nodeName={self.name}")
        ended = {p.metadata.uid for p in pods if p.status.phase in ("Succeeded", "Failed")}
        work = dict(before.work)
        for runtime, state in states(node).items():
            if state is not None and state.stage in AGENT_STAGES:
                added = state.stage is Stage.CONFIGURE
                (self.handlers.add if added else self.handlers.discard)("kata")
                work[runtime] = WorkReport(
                    uid=state.uid,
                    stage=state.stage,
                    revision=state.target,
                    attempt=state.attempt,
                    result=WorkResult.DONE,
                )
        report = Report(handlers=tuple(sorted(self.handlers)), work=work, ended=tuple(sorted(ended)))
        if report != before:
            patch = {"metadata": {"annotations": {names.REPORT_ANNOTATION: encode(report)}}}
            await self.client.patch(NODES, self.name, patch, subresource="status", content_type=STRATEGIC_MERGE_PATCH)


class Lab:
    def __init__(self) -> None:
        self.server = ApiServer(clock=SystemClock(), rng=random.Random(1))
        self.client = self.connect("test")
        self.nodes: list[FakeNode] = []

    def connect(self, user: str) -> Client:
        return Client(MemoryTransport(self.server, user=user), rng=random.Random(2))

    async def until(self, holds: Any, seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - the world is the server's, and is asked
                await asyncio.sleep(TICK)

    async def stages(self, runtime: str = "kata") -> list[str]:
        nodes, _ = await self.client.list(NODES)
        return [n.metadata.labels.get(names.stage_label(runtime), "absent") for n in nodes]

    async def all(self, stage: str) -> bool:
        return set(await self.stages()) == {stage}

    async def gone(self) -> bool:
        try:
            await self.client.get(NODERUNTIMES, "kata")
        except NotFound:
            return True
        return False


@asynccontextmanager
async def lab(nodes: int = 2, controllers: int = 1) -> AsyncIterator[Lab]:
    it = Lab()
    async with asyncio.TaskGroup() as tasks:
        running = []
        for i in range(nodes):
            node = FakeNode(it.connect(f"node{i}"), f"node{i}")
            await node.join({"pool": "a"})
            it.nodes.append(node)
            running.append(tasks.create_task(node.run()))
        for i in range(controllers):
            controller = Controller(
                it.connect("controller"), clock=SystemClock(), rng=random.Random(i), identity=f"c{i}"
            )
            running.append(tasks.create_task(controller.run()))
        yield it
        for task in running:
            task.cancel()


def noderuntime(**spec: Any) -> dict[str, Any]:
    phase = {"image": "payload", "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "kata"},
        "spec": {
            "nodeSelector": {"matchLabels": {"pool": "a"}},
            "handlers": [{"name": "kata", "runtimeClass": {"name": "kata"}}],
            "phases": {"install": phase, "uninstall": phase},
            "rollout": {"maxUnavailable": "100%", "canary": {"count": 0}, "bakeSeconds": 0},
            **spec,
        },
    }


async def test_install_on_every_node_then_delete_leaves_nothing() -> None:
    async with lab() as it:
        await it.client.create(NODERUNTIMES, noderuntime())
        await it.until(lambda: it.all("ready"))
        classes, _ = await it.client.list(RUNTIMECLASSES)
        assert [(c.metadata.name, c.handler) for c in classes] == [("kata", "kata")]
        await it.client.delete(NODERUNTIMES, "kata")
        await it.until(it.gone)
        nodes, _ = await it.client.list(NODES)
        for node in nodes:
            assert [k for k in node.metadata.labels if "runtime-reconciler" in k] == []
            assert [k for k in node.metadata.annotations if k != names.REPORT_ANNOTATION] == []
        assert (await it.client.list(RUNTIMECLASSES))[0] == []
        assert (await it.client.list(CONTROLLERREVISIONS, NS))[0] == []
        pods, _ = await it.client.list(PODS, NS, label_selector=f"{names.COMPONENT_LABEL}={names.COMPONENT_PHASE}")
        assert pods == []
        assert [node.ran for node in it.nodes] == [["install", "uninstall"]] * 2


async def test_the_status_tells_what_is_ready() -> None:
    async with lab() as it:
        await it.client.create(NODERUNTIMES, noderuntime())

        async def complete() -> bool:
            status = (await it.client.get(NODERUNTIMES, "kata")).status
            return [c.status for c in status.conditions if c.type == "Available"] == ["True"]

        await it.until(complete)
        status = (await it.client.get(NODERUNTIMES, "kata")).status
        assert (status.nodes.total, status.nodes.ready, status.in_work) == (2, 2, ())
        assert status.stages == {"ready": 2}
        assert status.runtime_classes == ("kata",)


async def test_a_settled_system_writes_nothing() -> None:
    async with lab() as it:
        await it.client.create(NODERUNTIMES, noderuntime())
        await it.until(lambda: it.all("ready"))
        await asyncio.sleep(1.5)
        before = len(writes(it))
        await asyncio.sleep(1.0)
        assert len(writes(it)) == before


def writes(it: Lab) -> list[Any]:
    """Writes of the controller, Leases and Events apart."""
    return [
        a
        for a in it.server.audit
        if a.user == "controller"
        and a.method not in ("GET", "WATCH")
        and a.target.kind.plural not in ("leases", "events")
    ]


async def test_few_patches_of_a_node_for_a_whole_loop() -> None:
    async with lab(nodes=1) as it:
        await it.client.create(NODERUNTIMES, noderuntime())
        await it.until(lambda: it.all("ready"))
        await it.client.delete(NODERUNTIMES, "kata")
        await it.until(it.gone)
        patches = [a for a in writes(it) if a.target.kind.plural == "nodes" and a.status < 400]
        assert [a.status for a in patches] == [200] * 6
        assert len(writes(it)) - len(patches) <= 20


async def test_a_failing_payload_is_undone_and_said_so() -> None:
    async with lab(nodes=1) as it:
        it.nodes[0].exits["install"] = 3
        spec = noderuntime()
        await it.client.create(NODERUNTIMES, spec)

        async def first_failure() -> bool:
            node = await it.client.get(NODES, "node0")
            state = states(node).get("kata")
            return state is not None and state.attempt == 2 and state.error is not None

        await it.until(first_failure)
        state = states(await it.client.get(NODES, "node0"))["kata"]
        assert state is not None and state.error is not None
        assert state.error.reason == "PayloadFailed"
        assert state.error.message.startswith("exit code 3")


async def test_deleted_in_the_middle_of_the_install_it_is_undone() -> None:
    async with lab() as it:
        for node in it.nodes:
            node.hangs.add("install")
        await it.client.create(NODERUNTIMES, noderuntime())

        async def some_at_install() -> bool:
            return "install" in await it.stages()

        await it.until(some_at_install)
        await it.client.delete(NODERUNTIMES, "kata")
        await it.until(it.gone)
        assert set(await it.stages()) == {"absent"}


@pytest.mark.parametrize("count", [1, 2])
async def test_no_more_nodes_at_work_than_allowed(count: int) -> None:
    async with lab(nodes=3) as it:
        rollout = {"maxUnavailable": count, "canary": {"count": 0}, "bakeSeconds": 0}
        await it.client.create(NODERUNTIMES, noderuntime(rollout=rollout))
        most = 0

        async def done() -> bool:
            nonlocal most
            stages = await it.stages()
            most = max(most, sum(s not in ("absent", "ready") for s in stages))
            return set(stages) == {"ready"}

        await it.until(done)
        assert most <= count


async def test_a_standby_takes_over_when_the_leader_is_gone() -> None:
    async with lab(controllers=2) as it:
        await it.client.create(NODERUNTIMES, noderuntime())
        await it.until(lambda: it.all("ready"))
        node: Node = await it.client.get(NODES, "node0")
        assert msgspec.json.decode(node.metadata.annotations[names.state_annotation("kata")])["stage"] == "ready"
