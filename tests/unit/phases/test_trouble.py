"""What is wrong is told before any deadline, and only what does not go by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.node import NodeState, Problem, Stage, WorkReport, WorkResult
from reconciler.phases.decide import decide
from reconciler.phases.decision import EndPod, Move, Wait
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAN = Plan(phases={Stage.INSTALL: PhasePlan()}, handlers=frozenset({"a"}), written=frozenset({"a"}), configures=True)


def facts(**given: Any) -> Facts:
    return Facts(
        **{"goal": Goal("u", "r"), "state": None, "plans": {"r": PLAN}, "serving": True, "slot": True, **given}
    )


def installing(**state: Any) -> NodeState:
    return NodeState(uid="u", target="r", **{"stage": Stage.INSTALL, "since": NOW, **state})


def pod(outcome: Outcome, reason: str = "", message: str = "", attempt: int = 1) -> PodFacts:
    return PodFacts(
        uid="p",
        stage=Stage.INSTALL,
        revision="r",
        attempt=attempt,
        outcome=outcome,
        created=NOW,
        reason=reason,
        message=message,
    )


def waits(it: Facts, now: datetime = NOW) -> Wait:
    decision = decide(it, now)
    assert isinstance(decision, Wait)
    return decision


@pytest.mark.parametrize(("seconds", "told"), [(0, False), (59, False), (60, True), (3600, True)])
def test_an_agent_may_be_away_for_a_minute(seconds: int, told: bool) -> None:
    wait = waits(facts(agent_ready=False, agent_lost=NOW, agent_reason="why"), NOW + timedelta(seconds=seconds))
    assert (wait.reason, wait.message) == ("AgentMissing", "why")
    assert wait.trouble == (Problem("AgentMissing", "why") if told else None)
    assert wait.until == (None if told else NOW + timedelta(seconds=60))


def test_at_work_the_minute_of_the_agent_ends_before_the_deadline_of_the_stage() -> None:
    it = facts(state=installing(), agent_ready=False, agent_lost=NOW, agent_reason="why")
    assert waits(it).until == NOW + timedelta(seconds=60)
    later = waits(it, NOW + timedelta(seconds=61))
    assert later.until == NOW + timedelta(seconds=600)
    assert later.trouble == Problem("AgentMissing", "why")


@pytest.mark.parametrize(
    ("reason", "told"),
    [("ImagePullFailed", True), ("CreateContainerConfigError", True), ("ContainerCreating", False), ("", False)],
)
def test_a_pod_that_cannot_start_is_told_by_its_reason(reason: str, told: bool) -> None:
    wait = waits(facts(state=installing(), pods=(pod(Outcome.PENDING, reason, "because"),)))
    assert wait.trouble == (Problem(reason, "because") if told else None)


def test_a_pod_that_a_kubelet_refused_is_told_and_made_again() -> None:
    it = facts(state=installing(), pods=(pod(Outcome.NEVER_RAN, "OutOfcpu", "full"),))
    assert waits(it).trouble == Problem("OutOfcpu", "full")
    assert decide(it, NOW + timedelta(seconds=10)) == EndPod("p", Stage.INSTALL, 0)


def test_a_second_try_is_in_trouble_for_what_ended_the_first_until_it_is_through() -> None:
    error = Problem("PayloadFailed", "exit code 1")
    again = installing(attempt=2, error=error)
    assert waits(facts(state=again)).trouble == error  # in backoff
    assert waits(facts(state=again, pods=(pod(Outcome.RUNNING, attempt=2),))).trouble == error
    through = decide(facts(state=again, pods=(pod(Outcome.SUCCEEDED, attempt=2),)), NOW)
    assert isinstance(through, Move)
    assert through.state is not None
    assert through.state.error is None


@pytest.mark.parametrize(
    ("reason", "told"),
    [("HandlerConflict", True), ("InvalidToml", True), ("Busy", False), ("PodStillRunning", False)],
)
def test_what_the_agent_refuses_is_told_and_what_passes_is_not(reason: str, told: bool) -> None:
    answer = WorkReport(
        uid="u",
        stage=Stage.CONFIGURE,
        revision="r",
        attempt=1,
        result=WorkResult.WAITING,
        reason=reason,
        message="because",
    )
    wait = waits(facts(state=installing(stage=Stage.CONFIGURE), answer=answer))
    assert wait.trouble == (Problem(reason, "because") if told else None)


def test_a_handler_that_is_served_already_keeps_a_node_from_beginning() -> None:
    wait = waits(facts(served=frozenset({"a", "runc"})))
    assert (wait.reason, wait.wants_slot) == ("HandlerConflict", False)
    assert wait.trouble == Problem(
        "HandlerConflict", "CRI serves a already; remove it with what installed it, or name another handler"
    )


def test_a_handler_that_the_payload_writes_may_be_there_already() -> None:
    plan = Plan(phases=PLAN.phases, handlers=frozenset({"a"}))
    assert isinstance(decide(facts(plans={"r": plan}, served=frozenset({"a"})), NOW), Move)


def test_what_the_journal_holds_of_this_very_runtime_is_no_conflict() -> None:
    assert isinstance(decide(facts(served=frozenset({"a"}), dirty="u"), NOW), Move)
