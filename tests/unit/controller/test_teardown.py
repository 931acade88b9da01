"""What must have gone before the product is removed, in which order, and what is said while it goes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.controller.teardown import NotYet, teardown
from reconciler.kube.client import Client
from reconciler.kube.errors import Forbidden
from reconciler.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    LEASES,
    NODERUNTIMES,
    NODES,
    PODS,
    AnyResource,
)
from reconciler.sim import clock
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

NS = "runtime-reconciler"
SERVING = {"type": "ContainerdServing", "status": "True"}
CONTESTED = {"type": "ConfigContested", "status": "True"}
RUNS = {"containers": [{"name": "agent", "image": "agent"}]}
READY = {"type": "Ready", "status": "True"}
REPORT = "agent.runtime-reconciler.io/report"


class Cluster:
    """An API server with the product's own objects, and what the teardown said."""

    def __init__(self) -> None:
        self.server = ApiServer(clock=SystemClock(), rng=random.Random(1))
        self.admin = Client(MemoryTransport(self.server, user="admin"), rng=random.Random(2))
        self.said: list[str] = []

    async def install(self) -> None:
        await self.admin.create(DAEMONSETS, {"metadata": {"name": "agent"}}, NS)
        await self.admin.create(DEPLOYMENTS, {"metadata": {"name": "controller"}}, NS)
        await self.admin.create(LEASES, {"metadata": {"name": "runtime-reconciler-controller"}}, NS)

    async def runtime(self, name: str, **spec: Any) -> None:
        body = {"metadata": {"name": name, "finalizers": ["runtime-reconciler.io/nodes"]}, "spec": spec}
        await self.admin.create(NODERUNTIMES, body)

    async def node(self, name: str, annotations: dict[str, str], *conditions: dict[str, str]) -> None:
        await self.admin.create(NODES, {"metadata": {"name": name, "annotations": annotations}})
        await self.admin.patch(NODES, name, {"status": {"conditions": list(conditions)}}, subresource="status")

    async def cleaned(self, name: str, after: float) -> None:
        """The controller takes the finalizer off."""
        await asyncio.sleep(after)
        await self.admin.patch(NODERUNTIMES, name, {"metadata": {"finalizers": None}})

    async def teardown(self, *, delete: bool = False, timeout: float = 280) -> None:
        client = Client(MemoryTransport(self.server, user="teardown"), rng=random.Random(3))
        await teardown(client, namespace=NS, delete=delete, timeout=timeout, tell=self.said.append)

    async def left(self, *resources: AnyResource) -> list[str]:
        return [item.metadata.name for resource in resources for item in (await self.admin.list(resource))[0]]

    @property
    def writes(self) -> list[str]:
        mine = [one for one in self.server.audit if one.user == "teardown" and one.method != "GET"]
        return [f"{one.method} {one.target.kind.plural}/{one.target.name}" for one in mine]


def virtual(scenario: Any) -> None:
    clock.run(scenario())


def test_one_that_nobody_deleted_is_named_and_nothing_changes() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.install()
        await it.runtime("kata")
        await it.runtime("gvisor")
        with pytest.raises(NotYet) as refused:
            await it.teardown()
        assert str(refused.value) == (
            "still wanted: NodeRuntime gvisor, kata. Only the controller can take a runtime off its nodes, so nothing "
            "was removed. Delete what is named and run it again (it waits for what is being deleted): "
            "kubectl delete noderuntime gvisor kata"
        )
        assert it.writes == []

    virtual(scenario)


def test_one_that_is_being_deleted_is_waited_for_and_then_all_of_the_product_goes() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.install()
        await it.runtime("kata")
        await it.admin.delete(NODERUNTIMES, "kata")
        await it.admin.patch(NODERUNTIMES, "kata", {"status": {"stages": {"uninstall": 2}}}, subresource="status")
        done = asyncio.ensure_future(it.cleaned("kata", after=30))
        await it.teardown()
        await done
        assert it.said == [
            "waiting for kata (2 uninstall)",
            "no NodeRuntime is left",
            "agents and controller have ended",
            "conditions and report taken off 0 of 0 nodes",
        ]
        assert await it.left(NODERUNTIMES, DAEMONSETS, DEPLOYMENTS, LEASES) == []

    virtual(scenario)


def test_asked_to_it_deletes_them_and_waits() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.install()
        await it.runtime("kata")
        done = asyncio.ensure_future(it.cleaned("kata", after=30))
        await it.teardown(delete=True)
        await done
        assert it.said[:2] == ["NodeRuntime kata is deleted", "waiting for kata"]
        assert it.writes == [
            "DELETE noderuntimes/kata",
            "DELETE daemonsets/agent",
            "DELETE deployments/controller",
            "DELETE leases/runtime-reconciler-controller",
            "DELETE configmaps/runtime-reconciler-stop",
        ]

    virtual(scenario)


def test_after_its_deadline_it_says_what_holds_it_up_and_has_removed_nothing() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.install()
        await it.runtime("kata", paused=True)
        await it.admin.delete(NODERUNTIMES, "kata")
        stuck = {"type": "Stuck", "status": "True", "reason": "x", "message": "node b: not Ready"}
        await it.admin.patch(NODERUNTIMES, "kata", {"status": {"conditions": [stuck]}}, subresource="status")
        with pytest.raises(NotYet) as refused:
            await it.teardown(timeout=60)
        assert str(refused.value).startswith(
            "not gone after 60 s: kata Stuck: node b: not Ready; it is paused, and its deletion with it: set "
            "spec.paused to false. Nothing of the product was removed"
        )
        assert it.writes == []

    virtual(scenario)


def test_nodes_lose_the_agents_condition_and_report_and_keep_everything_else() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.node("a", {REPORT: "{}", "example.com/x": "y"}, READY, SERVING, CONTESTED)
        await it.node("b", {"skip.runtime-reconciler.io/kata": "true"}, READY)
        await it.node("c", {"example.com/x": "y"}, READY)
        await it.teardown()
        nodes = {node.metadata.name: node for node in (await it.admin.list(NODES))[0]}
        assert nodes["a"].metadata.annotations == {"example.com/x": "y"}
        assert nodes["b"].metadata.annotations == {}
        for node in nodes.values():
            assert [one.type for one in node.status.conditions] == ["Ready"]
        assert [write for write in it.writes if write.startswith("PATCH")] == ["PATCH nodes/a", "PATCH nodes/b"]
        assert it.said[-1] == "conditions and report taken off 2 of 3 nodes"

    virtual(scenario)


def test_state_of_a_node_that_was_given_up_stays_and_is_told() -> None:
    async def scenario() -> None:
        it = Cluster()
        state = names.state_annotation("kata")
        await it.node("a", {state: "{}"}, SERVING)
        await it.teardown()
        assert (await it.admin.get(NODES, "a")).metadata.annotations == {state: "{}"}
        assert it.said[-1] == "given up and never cleaned, so their state stays on the Node: a"

    virtual(scenario)


def test_a_pod_that_no_kubelet_ends_is_named_and_not_waited_for() -> None:
    async def scenario() -> None:
        it = Cluster()
        labels = {names.COMPONENT_LABEL: names.COMPONENT_AGENT}
        pod = {"metadata": {"name": "agent-1", "labels": labels}, "spec": {"nodeName": "dead", **RUNS}}
        await it.admin.create(PODS, pod, NS)
        begun = asyncio.get_running_loop().time()
        await it.teardown()
        assert 90 <= asyncio.get_running_loop().time() - begun < 95
        assert "not waited for any longer, because kubelet does not end them: agent-1 on dead" in it.said

    virtual(scenario)


def test_it_can_be_run_again_and_without_a_definition() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.teardown()
        await it.teardown()
        assert it.said.count("agents and controller have ended") == 2

    virtual(scenario)


def test_a_right_that_is_missing_is_an_error_before_anything_is_removed() -> None:
    async def scenario() -> None:
        it = Cluster()
        await it.install()
        it.server.knobs.rights.take("teardown", "list", "noderuntimes")
        with pytest.raises(Forbidden):
            await it.teardown()
        assert it.writes == []

    virtual(scenario)


def test_one_node_that_cannot_be_written_keeps_no_other_from_being_cleaned() -> None:
    async def scenario() -> None:
        it = Cluster()
        for name in ("a", "b"):
            await it.node(name, {REPORT: "{}"}, SERVING)
        it.server.knobs.rights.take("teardown", "patch", "nodes/status")
        with pytest.raises(Forbidden):
            await it.teardown()
        assert it.writes[-2:] == ["PATCH nodes/a", "PATCH nodes/b"]

    virtual(scenario)


def test_a_stop_is_told_of_and_goes_with_the_rest() -> None:
    async def scenario() -> None:
        it = Cluster()
        stop = {"metadata": {"name": names.STOP_NAME}, "data": {"by": "alice", "at": "2026-01-02T03:04:05Z"}}
        await it.admin.create(CONFIGMAPS, stop, NS)
        await it.runtime("kata")
        done = asyncio.ensure_future(it.cleaned("kata", after=30))
        await it.teardown(delete=True)
        await done
        assert it.said[1] == (
            "waiting for kata; everything is stopped by alice since 2026-01-02T03:04:05Z: `kubectl reconciler resume` "
            "lets the deletion go on"
        )
        assert await it.left(CONFIGMAPS) == []

    virtual(scenario)
