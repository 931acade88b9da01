"""Slots: never more than allowed, in order, canaries first, and none while the budget is spent."""

from typing import Any

import pytest

from reconciler.api.noderuntime import Canary, IntOrPercent, Rollout
from reconciler.phases.rollout import Admission, View, admit, count_of


def view(node: str, **fields: Any) -> View:
    return View(**{"node": node, "at_rest": True, "wants_slot": True, **fields})


def ready(node: str) -> View:
    return View(node=node, at_rest=True, done=True)


OPEN = Rollout(max_unavailable="100%", canary=Canary(count=0))


@pytest.mark.parametrize(
    ("value", "total", "least", "count"),
    [(3, 2, 1, 3), (0, 9, 1, 1), ("50%", 5, 1, 2), ("10%", 5, 1, 1), ("10%", 5, 0, 0)],
)
def test_percentages_round_down_but_not_below_the_least(
    value: IntOrPercent, total: int, least: int, count: int
) -> None:
    assert count_of(value, total, at_least=least) == count


def test_no_more_nodes_than_max_unavailable() -> None:
    rollout = Rollout(max_unavailable=2, canary=Canary(count=0))
    assert admit([view(n) for n in "dcba"], (), rollout, paused=False) == Admission(("a", "b"))


def test_a_node_at_rest_gives_its_slot_back() -> None:
    assert admit([ready("a"), view("b")], ("a",), Rollout(canary=Canary(count=0)), paused=False).in_work == ("b",)


@pytest.mark.parametrize("fields", [{"stuck": True}, {"node_ready": False}])
def test_a_stuck_or_unready_node_gives_its_slot_back(fields: dict[str, Any]) -> None:
    working = view("a", at_rest=False, wants_slot=False, **fields)
    assert admit([working], ("a",), OPEN, paused=False).in_work == ()


def test_a_node_that_works_again_after_it_gave_its_slot_back_takes_up_room() -> None:
    works = view("a", at_rest=False, wants_slot=False)
    rollout = Rollout(max_unavailable=1, canary=Canary(count=0))
    assert admit([works, view("b")], (), rollout, paused=False).in_work == ()
    assert admit([works, view("b"), view("c")], (), OPEN, paused=False).in_work == ("b", "c")
    assert admit([works, view("b")], (), Rollout(max_unavailable="100%"), paused=False) == Admission((), "Canary")


def test_a_node_that_has_just_got_its_slot_keeps_it_although_it_rests() -> None:
    rests = View(node="a", at_rest=True)
    assert admit([rests, view("b")], ("a",), OPEN, paused=False, unused=("a",)).in_work == ("a", "b")
    assert admit([rests, view("b")], ("a",), OPEN, paused=False).in_work == ("b",)


def test_a_node_that_vanished_gives_its_slot_back() -> None:
    assert admit([], ("a",), OPEN, paused=False).in_work == ()


def test_one_canary_first_then_the_rest() -> None:
    rollout = Rollout(max_unavailable="100%")
    assert admit([view("a"), view("b")], (), rollout, paused=False) == Admission(("a",), "Canary")
    assert admit([ready("a"), view("b"), view("c")], (), rollout, paused=False) == Admission(("b", "c"))


def test_a_canary_pause_holds_the_rest_until_it_is_taken_off() -> None:
    rollout = Rollout(max_unavailable="100%", canary=Canary(count=1, pause=True))
    assert admit([ready("a"), view("b")], (), rollout, paused=False) == Admission((), "CanaryPaused")


def test_a_failure_above_the_budget_halts_installs_but_not_removals_and_repairs() -> None:
    views = [view("a", failed=True, wants_slot=False), view("b"), view("c", removal=True), view("d", repair=True)]
    assert admit(views, (), OPEN, paused=False) == Admission(("c", "d"), "ErrorBudgetExceeded")


def test_paused_starts_nothing_but_lets_what_has_begun_go_on() -> None:
    views = [view("a", removal=True), view("b", at_rest=False)]
    assert admit(views, (), OPEN, paused=True) == Admission(("b",), "Paused")


def test_what_has_begun_comes_before_what_has_not_and_then_the_order() -> None:
    views = [view("a", rank=1), view("b"), view("z", at_rest=False, rank=2)]
    rollout = Rollout(max_unavailable=2, canary=Canary(count=0))
    assert admit(views, (), rollout, paused=False).in_work == ("z", "b")
