"""Small questions about one runtime on one node that several stages ask."""

from __future__ import annotations

from datetime import datetime

from reconciler.api.node import POD_STAGES, NodeState, Problem, Stage, WorkResult
from reconciler.phases.facts import Facts, Goal, Plan, PodFacts

INSTALL_PATH = (Stage.PRE_INSTALL, Stage.INSTALL, Stage.CONFIGURE, Stage.VERIFY)
REMOVAL_PATH = (Stage.UNCONFIGURE, Stage.UNINSTALL, Stage.POST_UNINSTALL)


def present(state: NodeState | None) -> bool:
    """Whether the node carries the `present` label: binaries and handler are there and stay."""
    return (
        state is not None
        and state.installed != ""
        and not state.draining
        and (state.stage is Stage.READY or state.stage in INSTALL_PATH)
    )


def effective_goal(facts: Facts) -> Goal:
    """The goal, unless this very revision was given up on here: then what was installed before, or nothing."""
    goal, state = facts.goal, facts.state
    if state is None:
        return goal
    if goal.uid != state.uid:
        return Goal(state.uid)
    if goal.revision and goal.revision == state.failed:
        return Goal(goal.uid, state.installed)
    return goal


def current_pod(facts: Facts, state: NodeState) -> PodFacts | None:
    """The phase pod of this very stage, revision and attempt."""
    wanted = (state.stage, state.target, state.attempt)
    if state.stage not in POD_STAGES:
        return None
    return next((p for p in facts.pods if (p.stage, p.revision, p.attempt) == wanted and p.uid != state.pod), None)


def moved(facts: Facts, state: NodeState) -> bool:
    """Another machine under this name, or a fresh root: nothing of what was done is there."""
    return facts.machine != "" and state.machine != "" and facts.machine != state.machine


def holds(facts: Facts) -> bool:
    """Whether the host may hold what this state does not tell of, of an earlier try: its journal says so, or the agent
    has not let go of a configure that waited."""
    answer = facts.answer
    begun = answer is not None and answer.stage is Stage.CONFIGURE and answer.result is WorkResult.WAITING
    return facts.dirty != "" or begun


def wrote(facts: Facts, state: NodeState) -> bool:
    """Whether the agent may have written something for this runtime."""
    return holds(facts) or state.installed != "" or state.stage in (Stage.CONFIGURE, Stage.VERIFY)


def answered(facts: Facts, state: NodeState) -> bool:
    """Whether the agent's report speaks of this very stage, revision and attempt."""
    answer = facts.answer
    return answer is not None and (answer.uid, answer.stage, answer.revision, answer.attempt) == (
        state.uid,
        state.stage,
        state.target,
        state.attempt,
    )


def fresh(facts: Facts, now: datetime) -> NodeState:
    """The state of a node on which nothing was done yet, with the goal as its target."""
    return NodeState(
        uid=facts.goal.uid, stage=Stage.ABSENT, target=facts.goal.revision, since=now, machine=facts.machine
    )


def plan_of(facts: Facts, revision: str) -> Plan:
    """A revision that nobody knows any more may have configured something."""
    return facts.plans.get(revision, Plan(configures=True))


def has(facts: Facts, state: NodeState, stage: Stage) -> bool:
    """Whether the target has a phase for this stage."""
    return stage in plan_of(facts, state.target).phases


def pod_uid(facts: Facts, state: NodeState) -> str:
    """UID of the pod that a next step has to see ended: this stage's own, or the one before it."""
    pod = current_pod(facts, state)
    return pod.uid if pod is not None else state.pod


def text(problem: Problem | None) -> str:
    """`reason: message`, or nothing."""
    return "" if problem is None else f"{problem.reason}: {problem.message}"
