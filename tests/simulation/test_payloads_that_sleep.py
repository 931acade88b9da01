"""A payload that labels its node and then sleeps must be ended before the agent touches the configuration."""

from __future__ import annotations

from datetime import UTC, datetime

from reconciler.api.node import NodeState, Stage
from reconciler.phases.decide import decide
from reconciler.phases.decision import EndPod
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_sleeping_install_pod_is_ended_in_configure() -> None:
    pod = PodFacts(uid="p", stage=Stage.INSTALL, revision="r", attempt=1, outcome=Outcome.RUNNING, created=NOW)
    facts = Facts(
        goal=Goal("u", "r"),
        state=NodeState(uid="u", stage=Stage.CONFIGURE, target="r", pod="p", since=NOW),
        plans={"r": Plan(phases={Stage.INSTALL: PhasePlan(grace=5, done_label=("k", "v"))}, configures=True)},
        pods=(pod,),
        serving=True,
        slot=True,
    )
    assert decide(facts, NOW) == EndPod("p", Stage.INSTALL, 5)
