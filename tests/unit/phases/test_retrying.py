"""A person asks for another try: of what is stuck at once, and of nothing that goes its way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.node import NodeState, Problem, Stage, WorkReport, WorkResult
from reconciler.phases.decide import decide
from reconciler.phases.decision import EndPod, MakePod, Move, Wait
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAN = Plan(phases={Stage.INSTALL: PhasePlan(timeout=60, grace=7)}, handlers=frozenset({"kata"}), configures=True)
PULLING = PodFacts(
    uid="p1",
    stage=Stage.INSTALL,
    revision="r1",
    attempt=1,
    outcome=Outcome.PENDING,
    created=T0,
    reason="ImagePullFailed",
)
LATE = 3600.0


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def state(stage: Stage, **fields: Any) -> NodeState:
    return NodeState(**{"uid": "u1", "stage": stage, "target": "r1", "since": T0, "machine": "m", **fields})


def facts(**fields: Any) -> Facts:
    base: dict[str, Any] = {
        "goal": Goal("u1", "r1"),
        "state": None,
        "plans": {"r1": PLAN},
        "served": frozenset({"runc", "kata"}),
        "serving": True,
        "serving_since": T0,
        "slot": True,
        "machine": "m",
        "retry": True,
    }
    return Facts(**{**base, **fields})


def answer(result: WorkResult) -> WorkReport:
    return WorkReport(uid="u1", stage=Stage.CONFIGURE, revision="r1", attempt=1, result=result, reason="InvalidToml")


def retried(decision: object) -> NodeState:
    assert isinstance(decision, Move)
    assert (decision.reason, decision.clear_retry) == ("Retried", True)
    assert decision.state is not None
    return decision.state


def test_a_stuck_pod_is_replaced_by_that_of_another_attempt() -> None:
    stuck = facts(state=state(Stage.INSTALL), pods=(PULLING,))
    new = retried(decide(stuck, after(LATE)))
    assert (new.stage, new.attempt, new.since, new.pod) == (Stage.INSTALL, 2, after(LATE), "p1")
    assert decide(facts(state=new, pods=(PULLING,), retry=False), after(LATE)) == EndPod("p1", Stage.INSTALL, 7)
    assert decide(facts(state=new, retry=False), after(LATE)) == MakePod(new)  # without a pause


def test_stuck_work_of_the_agent_is_asked_for_anew() -> None:
    stuck = facts(state=state(Stage.CONFIGURE), answer=answer(WorkResult.WAITING))
    new = retried(decide(stuck, after(LATE)))
    assert (new.stage, new.attempt, new.deadline) == (Stage.CONFIGURE, 2, after(LATE + 180))


def test_the_time_between_two_tries_is_not_waited_for() -> None:
    failed = state(Stage.INSTALL, attempt=2, error=Problem("PayloadFailed", "exit code 1"))
    new = retried(decide(facts(state=failed), after(1)))
    assert decide(facts(state=new, retry=False), after(1)) == MakePod(new)


def test_what_went_wrong_is_not_forgotten_by_that() -> None:
    """A first install was given up on and is taken away again: the node ends as failed, and says why."""
    refused = Problem("VerifyFailed", "CRI does not serve kata")
    taken_away = state(Stage.UNCONFIGURE, failed="r1", error=refused)
    new = retried(decide(facts(state=taken_away), after(LATE)))
    done = WorkReport(uid="u1", stage=Stage.UNCONFIGURE, revision="r1", attempt=2, result=WorkResult.DONE)
    end = decide(facts(state=new, answer=done, retry=False), after(LATE))
    assert isinstance(end, Move)
    assert end.state is not None
    assert (end.state.stage, end.state.failed, end.state.error) == (Stage.FAILED, "r1", refused)
    assert end.message == "VerifyFailed: CRI does not serve kata"


def test_the_try_after_the_one_that_was_asked_for_has_its_pause_again() -> None:
    hurried = state(Stage.INSTALL, attempt=2, hurried=True)
    failed = replace(PULLING, attempt=2, outcome=Outcome.FAILED, reason="PayloadFailed")
    decision = decide(facts(state=hurried, pods=(failed,), retry=False), T0)
    assert isinstance(decision, Move)
    assert decision.state is not None
    assert (decision.state.attempt, decision.state.hurried) == (3, False)
    waits = decide(facts(state=decision.state, retry=False), after(19))
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.until) == ("Backoff", after(20))


def test_a_handler_that_was_lost_too_often_is_repaired_once_more() -> None:
    contested = state(Stage.READY, installed="r1", repairs=(after(1), after(2), after(3)))
    decision = decide(facts(state=contested, served=frozenset({"runc"})), after(10))
    assert isinstance(decision, Move)
    assert decision.state is not None
    assert (decision.state.stage, decision.state.repairs, decision.clear_retry) == (Stage.CONFIGURE, (after(10),), True)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": state(Stage.INSTALL), "pods": (PULLING,)},
        {"state": state(Stage.CONFIGURE)},
        {"state": state(Stage.CONFIGURE, since=after(-LATE)), "agent_ready": False, "agent_lost": after(-LATE)},
        {"state": state(Stage.CONFIGURE, since=after(-LATE)), "node_ready": False},
    ],
    ids=["pod on its way", "agent at work", "no agent", "node not ready"],
)
def test_what_goes_its_way_or_cannot_be_done_is_left_alone(fields: dict[str, Any]) -> None:
    asked, plain = (decide(facts(**fields, retry=retry), after(1)) for retry in (True, False))
    assert isinstance(asked, Wait)
    assert asked == plain
