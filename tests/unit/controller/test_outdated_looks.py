"""What was seen of a node with another revision in mind is no progress of the present one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reconciler.api.meta import ObjectMeta
from reconciler.api.node import NodeState, Stage
from reconciler.api.noderuntime import Canary, NodeRuntime, NodeRuntimeSpec, NodeRuntimeStatus, Rollout
from reconciler.controller.outlooks import admission, outdate
from reconciler.controller.world import Outlook, World
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.facts import Goal
from reconciler.phases.rollout import View
from tests.unit.controller.bench import empty_world

T0 = datetime(2026, 1, 2, tzinfo=UTC)
SLOT = Wait(reason="WaitingForSlot", awaits=Signal.SLOT, wants_slot=True)
REST = Wait(reason="Ready", awaits=Signal.NOTHING)
ROLLOUT = Rollout(max_unavailable="100%", canary=Canary(count=1))
OWNER = NodeRuntime(
    metadata=ObjectMeta(name="kata", uid="u"),
    spec=NodeRuntimeSpec(rollout=ROLLOUT),
    status=NodeRuntimeStatus(revision="r1"),
)


def outlook(node: str, wait: Wait, goal: str, *, uid: str = "u", done: bool = False, failed: bool = False) -> Outlook:
    state = NodeState(uid="u", stage=Stage.READY, installed="r1", target="r1", since=T0)
    view = View(node=node, at_rest=True, wants_slot=wait.wants_slot, done=done, failed=failed, repair=done)
    return Outlook(view=view, wait=wait, state=state, counted=True, goal=Goal(uid, goal))


def world(*outlooks: Outlook) -> World:
    found = empty_world()
    found.outlooks["kata"] = {each.view.node: each for each in outlooks}
    return found


def test_a_node_that_nobody_has_looked_at_since_is_no_canary_of_the_new_revision() -> None:
    it = world(*(outlook(node, SLOT, "r2") for node in ("a", "b", "c")), outlook("d", REST, "r1", done=True))
    outdate(it, Goal("u", "r2"), "kata")
    assert admission(it, OWNER).in_work == ("a",)
    assert admission(it, OWNER).halted == "Canary"


@pytest.mark.parametrize("fields", [{"done": True}, {"failed": True}])
def test_what_was_reached_or_failed_before_is_forgotten(fields: dict[str, bool]) -> None:
    it = world(outlook("a", REST, "r1", **fields))
    outdate(it, Goal("u", "r2"), "kata")
    found = it.outlooks["kata"]["a"]
    assert (found.view.done, found.view.failed, found.view.repair, found.serves) == (False, False, False, False)
    assert found.wait == Wait(reason="RevisionChanged", awaits=Signal.CONTROLLER, message="not looked at since")


def test_what_an_earlier_noderuntime_of_that_name_had_reached_is_nothing_to_its_successor() -> None:
    it = world(outlook("a", REST, "r1", uid="before", done=True))
    outdate(it, Goal("u", "r1"), "kata")
    assert not it.outlooks["kata"]["a"].serves


def test_what_was_seen_with_this_revision_in_mind_stays() -> None:
    seen = (outlook("a", REST, "r1", done=True), outlook("b", SLOT, "r1"), outlook("c", REST, "r1", failed=True))
    it = world(*seen)
    outdate(it, Goal("u", "r1"), "kata")
    assert tuple(it.outlooks["kata"].values()) == seen


def test_a_node_at_work_or_waiting_for_its_slot_goes_on_as_it_is() -> None:
    waiting, leaving = outlook("a", SLOT, "r1"), outlook("b", REST, "", done=False)
    it = world(waiting, leaving)
    outdate(it, Goal("u", "r2"), "kata")
    assert tuple(it.outlooks["kata"].values()) == (waiting, leaving)


def test_what_is_said_of_a_state_that_nobody_can_read_stays() -> None:
    wait = Wait(reason="StateUnreadable", awaits=Signal.PERSON)
    garbled = outlook("a", wait, "", uid="", failed=True)
    it = world(garbled)
    outdate(it, Goal("u", "r2"), "kata")
    assert it.outlooks["kata"] == {"a": garbled}
