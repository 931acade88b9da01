"""A new leader hands out no slot before it has looked at every node: until then nobody can say how many are at work."""

import random
from typing import Any

import pytest

from metrics.controller import ControllerMetrics
from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.api.noderuntime import NodeRuntime
from reconciler.controller.runtime import RuntimeReconciler
from reconciler.controller.stopping import StopSwitch
from reconciler.controller.telemetry import Telemetry
from reconciler.controller.world import NODE_INDEX, Outlook, World
from reconciler.kube.client import Client
from reconciler.kube.events import Recorder
from reconciler.kube.resources import NODERUNTIMES, NODES
from reconciler.kube.store import Store
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.rollout import View
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

WAITS = Wait(reason="WaitingForSlot", awaits=Signal.SLOT, wants_slot=True)


def outlook(node: str, **view: Any) -> Outlook:
    return Outlook(view=View(node=node, **view), wait=WAITS, state=None, counted=True)


@pytest.mark.parametrize(
    ("seen", "outlooks", "in_work"),
    [
        (("n1",), (outlook("n1", at_rest=True, wants_slot=True),), ("n0",)),
        (("n0", "n1"), (outlook("n0", at_rest=False), outlook("n1", at_rest=True, wants_slot=True)), ("n0",)),
        (("n0", "n1"), (outlook("n0", at_rest=True), outlook("n1", at_rest=True, wants_slot=True)), ("n0",)),
    ],
)
async def test_a_leader_that_has_just_begun_gives_no_slot_back(
    seen: tuple[str, ...], outlooks: tuple[Outlook, ...], in_work: tuple[str, ...]
) -> None:
    server = ApiServer(clock=SystemClock(), rng=random.Random(1))
    client = Client(MemoryTransport(server, user="controller"), rng=random.Random(2))
    world = World(
        namespace=names.NAMESPACE,
        nodes=Store(),
        pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
        runtimes=Store(),
        revisions=Store(),
        classes=Store(),
    )
    for name in ("n0", "n1"):
        world.nodes.put(await client.create(NODES, {"metadata": {"name": name}}))
    rollout = {"maxUnavailable": 1, "canary": {"count": 0}}
    body = {"metadata": {"name": "kata", "finalizers": [names.FINALIZER]}, "spec": {"rollout": rollout}}
    await client.create(NODERUNTIMES, body)
    world.runtimes.put(await client.patch(NODERUNTIMES, "kata", {"status": {"inWork": ["n0"]}}, subresource="status"))
    world.seen.update(seen)
    world.outlooks["kata"] = {o.view.node: o for o in outlooks}

    telemetry = Telemetry(Recorder(client, "test", SystemClock()), ControllerMetrics(), world.runtime)
    switch = StopSwitch(client, Store(), world, SystemClock())
    it = RuntimeReconciler(
        world,
        client,
        confirm=switch.confirm,
        clock=SystemClock(),
        rng=random.Random(3),
        telemetry=telemetry,
        wake=lambda node: None,
    )
    await it.reconcile("kata")

    after: NodeRuntime = await client.get(NODERUNTIMES, "kata")
    assert after.status.in_work == in_work
