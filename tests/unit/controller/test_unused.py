"""When the slot of a node that rests is given back."""

from __future__ import annotations

from reconciler.controller.unused import Unused
from reconciler.phases.rollout import View

RESTS = {"a": View(node="a", at_rest=True)}
WORKS = {"a": View(node="a", at_rest=False)}


def test_a_slot_without_work_is_kept_for_two_seconds() -> None:
    unused = Unused()
    assert unused.fresh("kata", ["a"], RESTS, 10.0) == {"a": 12.0}
    assert unused.fresh("kata", ["a"], RESTS, 11.9) == {"a": 12.0}
    assert unused.fresh("kata", ["a"], RESTS, 12.0) == {}


def test_after_work_it_is_given_back_at_once() -> None:
    unused = Unused()
    assert unused.fresh("kata", ["a"], WORKS, 10.0) == {}
    assert unused.fresh("kata", ["a"], RESTS, 10.1) == {}


def test_a_slot_that_is_taken_again_is_a_new_one() -> None:
    unused = Unused()
    unused.fresh("kata", ["a"], WORKS, 10.0)
    unused.fresh("kata", [], RESTS, 11.0)
    assert unused.fresh("kata", ["a"], RESTS, 12.0) == {"a": 14.0}


def test_a_node_that_nobody_knows_has_nothing_to_keep() -> None:
    assert Unused().fresh("kata", ["a"], {}, 10.0) == {}
