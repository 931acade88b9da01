"""From one stage to the next: the only place where a stage is entered."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from reconciler.api.node import AGENT_STAGES, NodeState, Problem, Stage
from reconciler.phases import deadlines, questions, use, waits
from reconciler.phases.decision import Decision, Move
from reconciler.phases.facts import Facts, Goal

MAX_ATTEMPTS = 3
"""Tries of an install phase before the node is given up on for this revision."""
MAX_SIGNALS = 8
"""Keys of done labels that a node keeps in mind: payloads have one or two, and a key has up to 317 characters."""


def advance(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """To the next stage that has something to do."""
    done = msgspec.structs.replace(
        state, pod=questions.pod_uid(facts, state), error=None if not state.failed else state.error
    )
    if state.stage in questions.REMOVAL_PATH:
        return _next_removal(facts, done, state.stage, now)
    if state.stage is Stage.PRE_INSTALL:
        step = Stage.INSTALL if questions.has(facts, done, Stage.INSTALL) else Stage.CONFIGURE
        return enter(facts, done, step, now, "PhaseDone")
    if state.stage is Stage.INSTALL:
        return enter(facts, done, Stage.CONFIGURE, now, "PhaseDone")
    if state.stage is Stage.CONFIGURE and facts.bake > 0:
        return enter(facts, done, Stage.VERIFY, now, "Configured")
    return _ready(facts, done, now)


def _ready(facts: Facts, state: NodeState, now: datetime) -> Decision:
    ready = msgspec.structs.replace(_at_rest(state, Stage.READY, now), installed=state.target, machine=facts.machine)
    return Move(
        state=ready,
        reason="Ready",
        message=f"revision {state.target} is ready",
        clear_labels=_done_labels(facts, state),
        drop_taints=facts.tainted,
    )


def _at_rest(state: NodeState, stage: Stage, now: datetime) -> NodeState:
    return msgspec.structs.replace(
        state, stage=stage, attempt=1, since=now, deadline=None, forced=False, hurried=False, signals=()
    )


def begin_install(facts: Facts, state: NodeState, now: datetime, reason: str = "InstallStarted") -> Decision:
    """The first step in, by the revision that is the target."""
    if (missing := waits.missing(facts, facts.state or state, state.target, now)) is not None:
        return missing
    for step in (Stage.PRE_INSTALL, Stage.INSTALL):
        if questions.has(facts, state, step):
            return enter(facts, state, step, now, reason, clear_retry=facts.retry)
    return enter(facts, state, Stage.CONFIGURE, now, reason, clear_retry=facts.retry)


def begin_again(facts: Facts, state: NodeState, goal: Goal, now: datetime) -> Decision:
    """From the first stage, whatever was done on the machine before; its pods are ended first."""
    fresh = msgspec.structs.replace(
        questions.fresh(facts, now),
        target=goal.revision,
        failed=state.failed,
        pod=questions.pod_uid(facts, state),
        signals=state.signals,
    )
    return begin_install(facts, fresh, now, reason="MachineChanged")


def begin_removal(facts: Facts, state: NodeState, now: datetime, problem: Problem | None = None) -> Decision:
    """The first step out, by the revision whose payload ran here last."""
    by = state.installed if state.stage in (Stage.PRE_INSTALL, Stage.READY) and state.installed else state.target
    if (missing := waits.missing(facts, state, by, now)) is not None:
        return missing
    plan = questions.plan_of(facts, by)
    if state.stage is not Stage.READY and (used := use.in_use(facts, state, now)) is not None:
        return used
    out = msgspec.structs.replace(
        state, target=by, attempt=1, pod=questions.pod_uid(facts, state), draining=False, error=problem or state.error
    )
    if questions.holds(facts) or (questions.wrote(facts, state) and plan.configures):
        return enter(facts, out, Stage.UNCONFIGURE, now, "RemovalStarted", clear_retry=facts.retry)
    return _next_removal(facts, out, Stage.UNCONFIGURE, now)


def _next_removal(facts: Facts, state: NodeState, after: Stage, now: datetime) -> Decision:
    if (missing := waits.missing(facts, state, state.target, now)) is not None:
        return missing
    for step in questions.REMOVAL_PATH[questions.REMOVAL_PATH.index(after) + 1 :]:
        if questions.has(facts, state, step):
            return enter(facts, state, step, now, "PhaseDone")
    if any(not pod.ended for pod in facts.pods) and after is not Stage.POST_UNINSTALL:
        return enter(facts, state, Stage.POST_UNINSTALL, now, "PodsEnding")
    goal = facts.goal
    if state.failed and goal.uid == state.uid and goal.revision == state.failed:
        failed = msgspec.structs.replace(_at_rest(state, Stage.FAILED, now), installed="", target="", pod="")
        return Move(
            state=failed, reason="Failed", message=questions.text(state.error), clear_labels=_done_labels(facts, state)
        )
    return Move(state=None, reason="Absent", message="uninstalled", clear_labels=_done_labels(facts, state))


def _done_labels(facts: Facts, state: NodeState) -> tuple[str, ...]:
    """Keys of every phase that is known, and of those that ran before: a payload on its way out may have set its own
    again, after it was taken off."""
    found = (phase.done_label for plan in facts.plans.values() for phase in plan.phases.values())
    return tuple(sorted({label[0] for label in found if label is not None} | {*state.signals}))


def _signals(facts: Facts, entered: NodeState) -> tuple[str, ...]:
    """`signals` with the key of the phase that begins, the latest last."""
    phase = questions.plan_of(facts, entered.target).phases.get(entered.stage)
    if phase is None or phase.done_label is None:
        return entered.signals
    key = phase.done_label[0]
    return (*(other for other in entered.signals if other != key), key)[-MAX_SIGNALS:]


def next_attempt(facts: Facts, state: NodeState, problem: Problem, now: datetime) -> Decision:
    """Try again; an install that has failed often enough is given up on, a removal never is."""
    if state.stage in questions.INSTALL_PATH and state.attempt >= MAX_ATTEMPTS:
        return give_up(facts, state, problem, now)
    again = msgspec.structs.replace(
        state, attempt=state.attempt + 1, error=problem, pod=questions.pod_uid(facts, state)
    )
    return enter(facts, again, state.stage, now, "AttemptFailed", questions.text(problem))


def give_up(facts: Facts, state: NodeState, problem: Problem, now: datetime) -> Decision:
    """The target is not tried again on this node: back to what was installed before, or out."""
    lost = msgspec.structs.replace(
        state, failed=state.target, error=problem, attempt=1, pod=questions.pod_uid(facts, state)
    )
    if state.installed and state.installed != state.target:
        back = msgspec.structs.replace(lost, target=state.installed)
        return begin_install(facts, back, now, reason="RolledBack")
    if state.installed == state.target:
        lost = msgspec.structs.replace(lost, installed="")
    return begin_removal(facts, lost, now, problem)


def enter(
    facts: Facts,
    state: NodeState,
    stage: Stage,
    now: datetime,
    reason: str,
    message: str = "",
    *,
    clear_retry: bool = False,
    hurried: bool = False,
) -> Move:
    """Into `stage`: from now on, with its deadline, its attempt, and no done label of any phase left on the Node."""
    attempt = state.attempt if stage is state.stage else 1
    answer = facts.answer
    if answer is not None and (answer.uid, answer.stage, answer.revision) == (state.uid, stage, state.target):
        attempt = max(attempt, answer.attempt + 1)  # an answer that is there already must not count again
    forced = facts.force and stage in AGENT_STAGES
    entered = msgspec.structs.replace(state, stage=stage, since=now, attempt=attempt, forced=forced, hurried=hurried)
    seconds = deadlines.timeout(facts, entered)
    limit = None if seconds is None else deadlines.resumes(entered) + timedelta(seconds=seconds)
    return Move(
        state=msgspec.structs.replace(entered, deadline=limit, signals=_signals(facts, entered)),
        reason=reason,
        message=message,
        clear_labels=_done_labels(facts, entered),
        clear_retry=clear_retry,
    )
