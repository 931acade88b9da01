"""A new leader hands out no slot before it has looked at every node: until then nobody can say how many are at work."""

from datetime import UTC, datetime
from typing import Any

import pytest

from metrics.controller import ControllerMetrics
from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.api.meta import Condition, Node, NodeStatus, ObjectMeta
from reconciler.api.node import NodeState, Stage, encode
from reconciler.api.noderuntime import NodeRuntime, NodeRuntimeSpec, NodeRuntimeStatus
from reconciler.controller.node import NodeReconciler
from reconciler.controller.outlooks import admission, step
from reconciler.controller.telemetry import Telemetry
from reconciler.controller.world import Outlook, World
from reconciler.kube.client import Client
from reconciler.kube.errors import ServerError
from reconciler.kube.events import Recorder
from reconciler.kube.resources import NODERUNTIMES, NODES
from reconciler.phases.decision import Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal
from reconciler.phases.rollout import View
from tests.unit.controller.bench import controller_client, empty_world, runtime_reconciler

WAITS = Wait(reason="WaitingForSlot", awaits=Signal.SLOT, wants_slot=True)


def outlook(node: str, **view: Any) -> Outlook:
    return Outlook(view=View(node=node, **view), wait=WAITS, state=None, counted=True)


class Down:
    """An API server that fails at every write."""

    async def patch(self, *_: object, **__: object) -> object:
        raise ServerError(500, "InternalError", "etcd is away")


async def test_a_node_whose_first_step_fails_counts_as_at_work() -> None:
    world = empty_world()
    now = datetime(2026, 1, 2, tzinfo=UTC)
    state = NodeState(uid="u", stage=Stage.INSTALL, target="r", since=now)
    meta = ObjectMeta(name="n0", annotations={names.state_annotation("kata"): encode(state)})
    ready = Condition(type="Ready", status="True")
    world.nodes.put(Node(metadata=meta, status=NodeStatus(conditions=(ready,))))
    owner = NodeRuntime(
        metadata=ObjectMeta(name="kata", uid="u", finalizers=(names.FINALIZER,)),
        spec=NodeRuntimeSpec(),
        status=NodeRuntimeStatus(in_work=("n0",)),
    )
    world.runtimes.put(owner)
    client: Any = Down()
    it = NodeReconciler(
        world,
        client,
        starter=client,
        confirm=nothing,
        clock=SystemClock(),
        telemetry=Telemetry(Recorder(client, "test", SystemClock()), ControllerMetrics(), world.runtime),
        changed=lambda runtime: None,
        own_node="",
    )
    with pytest.raises(ServerError):
        await it.reconcile("n0")  # its labels are to be put right
    assert world.seen == {"n0"}
    assert admission(world, owner).in_work == ("n0",)


async def nothing() -> None:
    return None


async def test_who_is_being_touched_keeps_the_finalizer() -> None:
    """The PATCH that begins the work on a node may be under way while its NodeRuntime is deleted."""
    world = empty_world()
    owner = NodeRuntime(metadata=ObjectMeta(name="kata", uid="u"), spec=NodeRuntimeSpec())
    world.runtimes.put(owner)
    world.outlooks["kata"] = {"n0": outlook("n0", at_rest=True, wants_slot=True)}
    began = NodeState(uid="u", stage=Stage.INSTALL, target="r", since=datetime(2026, 1, 2, tzinfo=UTC))
    facts = Facts(goal=Goal("u", "r"), state=None, plans={})
    step(world, Node(metadata=ObjectMeta(name="n0")), "kata", facts, Move(state=began, reason="InstallStarted"))
    after = world.outlooks["kata"]["n0"]
    assert (after.state, after.view.at_rest, after.view.wants_slot) == (began, False, True)


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
    world, client = await two_nodes()
    world.seen.update(seen)
    world.outlooks["kata"] = {o.view.node: o for o in outlooks}
    await runtime_reconciler(world, client).reconcile("kata")

    after: NodeRuntime = await client.get(NODERUNTIMES, "kata")
    assert after.status.in_work == in_work


async def test_a_slot_is_on_its_way_back_before_anything_is_asked() -> None:
    """Asking whether everything is stopped takes a moment, in which its old holder must begin nothing with it."""
    world, client = await two_nodes()
    world.seen.update(("n0", "n1"))
    asked = []

    async def confirm() -> None:
        asked.append(dict(world.giving_back))

    it = runtime_reconciler(world, client, confirm)
    for at_rest in (False, True):
        waiting = outlook("n1", at_rest=True, wants_slot=True)
        world.outlooks["kata"] = {"n0": outlook("n0", at_rest=at_rest), "n1": waiting}
        await it.reconcile("kata")

    assert asked == [{"kata": {"n0"}}]
    after: NodeRuntime = await client.get(NODERUNTIMES, "kata")
    assert (after.status.in_work, world.giving_back) == (("n1",), {})


async def two_nodes() -> tuple[World, Client]:
    """A NodeRuntime for one node at a time, whose slot n0 has."""
    world, client = empty_world(), controller_client()
    for name in ("n0", "n1"):
        world.nodes.put(await client.create(NODES, {"metadata": {"name": name}}))
    rollout = {"maxUnavailable": 1, "canary": {"count": 0}}
    body = {"metadata": {"name": "kata", "finalizers": [names.FINALIZER]}, "spec": {"rollout": rollout}}
    await client.create(NODERUNTIMES, body)
    world.runtimes.put(await client.patch(NODERUNTIMES, "kata", {"status": {"inWork": ["n0"]}}, subresource="status"))
    return world, client
