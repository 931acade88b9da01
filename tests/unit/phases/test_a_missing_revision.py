"""What goes on, and what does not, where the revision that says how is not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.api.node import NodeState, Problem, Stage, WorkReport, WorkResult
from reconciler.phases.decide import decide
from reconciler.phases.decision import Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal, Plan

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MISSING = Problem("RevisionMissing", "ControllerRevision of revision r1 is not there, and nothing else says how")


def state(stage: Stage, **fields: Any) -> NodeState:
    return NodeState(**{"uid": "u", "stage": stage, "installed": "r1", "target": "r1", "since": T0, **fields})


def facts(it: NodeState, **fields: Any) -> Facts:
    goal = Goal("u") if it.stage in (Stage.READY, Stage.UNCONFIGURE, Stage.UNINSTALL) else Goal("u", "r1")
    base = {"goal": goal, "state": it, "plans": {}, "serving": True, "serving_since": T0, "slot": True, "in_use": {}}
    return Facts(**{**base, **fields})


def unconfigured() -> WorkReport:
    return WorkReport(uid="u", stage=Stage.UNCONFIGURE, revision="r1", attempt=1, result=WorkResult.DONE)


@pytest.mark.parametrize(
    "stage",
    [
        Stage.PRE_INSTALL,
        Stage.INSTALL,
        Stage.VERIFY,
        Stage.READY,  # a removal of which nobody knows how is not begun
        Stage.UNCONFIGURE,
        Stage.UNINSTALL,
    ],
)
def test_no_step_of_it_is_passed_over(stage: Stage) -> None:
    waits = decide(facts(state(stage), answer=unconfigured()), T0)
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.awaits, waits.trouble) == ("RevisionMissing", Signal.REVISION, MISSING)
    assert not waits.wants_slot


def failed_answer() -> WorkReport:
    return WorkReport(uid="u", stage=Stage.CONFIGURE, revision="r2", attempt=1, result=WorkResult.FAILED)


@pytest.mark.parametrize(
    ("it", "fields"),
    [
        (state(Stage.READY, machine="old"), {"machine": "new"}),
        (state(Stage.VERIFY, machine="old"), {"machine": "new"}),
        (state(Stage.READY, installed="r0", failed="r1"), {"retry": True}),
        (state(Stage.READY, installed="r0"), {}),
        (state(Stage.FAILED, installed="", failed="r1"), {"retry": True}),
        (state(Stage.CONFIGURE, target="r2"), {"goal": Goal("u", "r2"), "answer": failed_answer()}),  # and back to r1
        (state(Stage.INSTALL, target="r0"), {}),
    ],
)
@pytest.mark.parametrize("slot", [True, False])
def test_an_install_of_it_is_not_begun(it: NodeState, fields: dict[str, Any], slot: bool) -> None:
    """Or it would begin with the configuration, as one does that has no payload."""
    plans = {revision: Plan(handlers=frozenset({"kata"})) for revision in ("r0", "r2")}
    waits = decide(facts(it, **{"goal": Goal("u", "r1"), "plans": plans, "slot": slot, **fields}), T0)
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.awaits, waits.trouble) == ("RevisionMissing", Signal.REVISION, MISSING)
    assert not waits.wants_slot


@pytest.mark.parametrize("stage", [Stage.UNCONFIGURE, Stage.UNINSTALL])
def test_it_went_with_its_noderuntime_and_is_not_waited_for(stage: Stage) -> None:
    gone = decide(facts(state(stage), answer=unconfigured(), owned=False), T0)
    assert isinstance(gone, Move)
    assert gone.reason == "Absent"


def test_a_deadline_is_the_one_of_the_beginning() -> None:
    late = state(Stage.UNINSTALL, deadline=T0 + timedelta(seconds=60))
    away = facts(late, agent_ready=False, agent_lost=T0)
    before, after = (decide(away, T0 + timedelta(seconds=seconds)) for seconds in (59, 60))
    assert isinstance(before, Wait)
    assert before.stuck is None
    assert isinstance(after, Wait)
    assert after.stuck is not None
