"""A fresh root under the same Node: an install begins again from its first stage, with whatever stage it was in."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reconciler.api.node import NodeState, Stage
from reconciler.phases.decide import decide
from reconciler.phases.decision import Move
from reconciler.phases.facts import Facts, Goal, PhasePlan, Plan

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAN = Plan(phases={Stage.PRE_INSTALL: PhasePlan(), Stage.INSTALL: PhasePlan()}, configures=True)


def facts(stage: Stage, machine: str, before: str = "old") -> Facts:
    installed = "r" if stage is Stage.READY else ""
    state = NodeState(uid="u", stage=stage, target="r", installed=installed, attempt=2, since=NOW, machine=before)
    return Facts(goal=Goal("u", "r"), state=state, plans={"r": PLAN}, slot=True, serving=True, machine=machine)


@pytest.mark.parametrize("stage", [Stage.PRE_INSTALL, Stage.INSTALL, Stage.CONFIGURE, Stage.VERIFY, Stage.READY])
def test_it_begins_again(stage: Stage) -> None:
    move = decide(facts(stage, "new"), NOW)
    assert isinstance(move, Move)
    assert move.reason == "MachineChanged"
    assert move.state is not None
    assert (move.state.stage, move.state.target, move.state.installed) == (Stage.PRE_INSTALL, "r", "")
    assert (move.state.machine, move.state.attempt) == ("new", 1)


@pytest.mark.parametrize(("machine", "before"), [("old", "old"), ("", "old"), ("new", "")])
def test_the_same_machine_or_one_that_tells_no_id_goes_on(machine: str, before: str) -> None:
    move = decide(facts(Stage.VERIFY, machine, before), NOW)
    assert not isinstance(move, Move) or move.reason != "MachineChanged"
