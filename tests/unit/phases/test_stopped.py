"""While everything is stopped: what begins is held, what ends is recorded, and deadlines stand still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.node import NodeState, Stage, WorkReport, WorkResult
from reconciler.api.noderuntime import Canary, Rollout
from reconciler.phases.deadlines import deadline
from reconciler.phases.decide import decide
from reconciler.phases.decision import EndPod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts, Stop
from reconciler.phases.rollout import Admission, View, admit

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAN = Plan(
    phases={s: PhasePlan(timeout=60, grace=7) for s in (Stage.INSTALL, Stage.UNINSTALL)},
    handlers=frozenset({"kata"}),
    configures=True,
)
WORDS = "everything is stopped by a person"
HELD = Wait(reason="Stopped", awaits=Signal.RESUME, message=WORDS)
GONE = Goal("u1")


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def state(stage: Stage, **fields: Any) -> NodeState:
    return NodeState(**{"uid": "u1", "stage": stage, "target": "r1", "since": T0, "machine": "m", **fields})


READY = state(Stage.READY, installed="r1")


def facts(**fields: Any) -> Facts:
    base: dict[str, Any] = {
        "goal": Goal("u1", "r1"),
        "state": None,
        "plans": {"r1": PLAN, "r2": PLAN},
        "served": frozenset({"runc", "kata"}) if fields.get("state") else frozenset({"runc"}),
        "serving": True,
        "serving_since": T0,
        "slot": True,
        "machine": "m",
        "bake": 30.0,
        "stopped": WORDS,
        "stops": (Stop(T0),),
    }
    return Facts(**{**base, **fields})


def pod(stage: Stage, outcome: Outcome, **fields: Any) -> PodFacts:
    base = {"uid": "p1", "stage": stage, "revision": "r1", "attempt": 1, "outcome": outcome, "created": T0}
    return PodFacts(**{**base, **fields})


def answer(stage: Stage, result: WorkResult, **fields: Any) -> WorkReport:
    return WorkReport(**{"uid": "u1", "stage": stage, "revision": "r1", "attempt": 1, "result": result, **fields})


BEGINNINGS = {
    "first install": {},
    "a slot is wanted": {"slot": False},
    "phase pod": {"state": state(Stage.INSTALL)},
    "next stage": {"state": state(Stage.INSTALL), "pods": (pod(Stage.INSTALL, Outcome.SUCCEEDED),)},
    "next try": {"state": state(Stage.INSTALL), "pods": (pod(Stage.INSTALL, Outcome.FAILED),)},
    "kill of a sleeper": {"state": state(Stage.CONFIGURE, pod="p1"), "pods": (pod(Stage.INSTALL, Outcome.RUNNING),)},
    "undo": {"state": state(Stage.CONFIGURE), "answer": answer(Stage.CONFIGURE, WorkResult.FAILED)},
    "repair": {"state": READY, "served": frozenset({"runc"})},
    "upgrade": {"state": READY, "goal": Goal("u1", "r2")},
    "question who uses it": {"state": READY, "goal": GONE},
    "removal": {"state": READY, "goal": GONE, "in_use": {}},
    "draining": {"state": READY, "goal": GONE, "in_use": {"kata": ("shop/web",)}},
    "removal half-way": {"state": state(Stage.INSTALL), "goal": GONE},
    "leftover": {"goal": GONE, "dirty": "u1"},
    "another machine": {"state": READY, "machine": "other"},
    "retry": {"state": state(Stage.FAILED, failed="r1", target=""), "retry": True},
}


@pytest.mark.parametrize("fields", BEGINNINGS.values(), ids=BEGINNINGS.keys())
def test_what_would_begin_waits_for_a_person(fields: dict[str, Any]) -> None:
    assert decide(facts(**fields), after(1)) == HELD
    begun = decide(facts(**fields, stopped="", stops=()), after(1))
    assert begun != HELD
    assert not isinstance(begun, Wait) or begun.wants_slot


ENDS = {
    "configured": ({"state": state(Stage.CONFIGURE), "answer": answer(Stage.CONFIGURE, WorkResult.DONE)}, "verify"),
    "baked": ({"state": state(Stage.VERIFY)}, "ready"),
    "removed": (
        {
            "state": state(Stage.UNINSTALL),
            "goal": GONE,
            "pods": (pod(Stage.UNINSTALL, Outcome.SUCCEEDED, ended=True),),
        },
        "absent",
    ),
    "labels": ({"state": READY, "labels_true": False}, "ready"),
}


@pytest.mark.parametrize(("fields", "stage"), ENDS.values(), ids=ENDS.keys())
def test_what_has_ended_is_recorded(fields: dict[str, Any], stage: str) -> None:
    decision = decide(facts(**fields), after(60))
    assert isinstance(decision, Move)
    assert (str(decision.state.stage) if decision.state else "absent") == stage


def test_the_object_of_a_pod_of_which_nothing_runs_is_removed() -> None:
    over = pod(Stage.INSTALL, Outcome.SUCCEEDED, ended=True)
    assert decide(facts(state=state(Stage.VERIFY, pod="p1"), pods=(over,)), after(1)) == EndPod("p1", Stage.INSTALL, 0)


@pytest.mark.parametrize(
    ("stops", "limit"),
    [
        ((), 60),
        ((Stop(after(10)),), None),
        ((Stop(after(60)),), 60),
        ((Stop(after(10), after(30)),), 80),
        ((Stop(after(-50), after(-10)),), 60),
        ((Stop(after(-50), after(10)),), 70),
        ((Stop(after(10), after(30)), Stop(after(70), after(75))), 85),
        ((Stop(after(10), after(30)), Stop(after(90), after(95))), 80),
        ((Stop(after(10), after(30)), Stop(after(70))), None),
    ],
)
def test_a_deadline_is_later_by_the_time_for_which_everything_was_stopped(
    stops: tuple[Stop, ...], limit: float | None
) -> None:
    recorded = state(Stage.INSTALL)
    found = deadline(facts(state=recorded, stopped="", stops=stops), recorded)
    assert found == (None if limit is None else after(limit))


def test_a_node_is_not_stuck_for_what_it_waited_while_everything_was_stopped_and_stays_stuck_if_it_was() -> None:
    running = {"state": state(Stage.INSTALL), "pods": (pod(Stage.INSTALL, Outcome.PENDING),)}
    before = decide(facts(**running, stops=(Stop(after(59)),)), after(3600))
    assert isinstance(before, Wait)
    assert (before.stuck, before.until) == (None, None)
    passed = decide(facts(**running, stops=(Stop(after(61)),)), after(3600))
    assert isinstance(passed, Wait)
    assert passed.stuck is not None
    resumed = decide(facts(**running, stopped="", stops=(Stop(after(59), after(3600)),)), after(3600))
    assert isinstance(resumed, Wait)
    assert (resumed.stuck, resumed.until) == (None, after(3601))


def test_no_slot_is_handed_out_and_those_at_work_keep_theirs() -> None:
    views = [
        View(node="a", at_rest=False),
        View(node="b", at_rest=True, wants_slot=True),
        View(node="c", at_rest=True),
    ]
    rollout = Rollout(max_unavailable="100%", canary=Canary(count=0))
    assert admit(views, ("a", "c"), rollout, paused=False, stopped=True) == Admission(("a",), "Stopped")
