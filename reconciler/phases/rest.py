"""Stages at rest (absent, failed, ready): nothing is at work on the node, and leaving takes a slot."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from reconciler.api.node import NodeState, Problem, Stage
from reconciler.phases import leftovers, moving, questions, use, waits
from reconciler.phases.decision import Decision, EndPod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal, Plan

MAX_REPAIRS = 3
"""Repairs an hour; after that somebody else's configuration management is fighting us."""


def at_absent(facts: Facts, now: datetime) -> Decision:
    """Nothing of this runtime is known of: it begins, undoes what the host still holds, or stays away."""
    if (leftover := leftovers.end_leftovers(facts, None, now)) is not None:
        return leftover
    if not facts.labels_true:
        return Move(state=None, reason="LabelsRestored")
    if facts.dirty and (not facts.goal.revision or facts.goal.uid != facts.dirty):
        return _undo_journal(facts, now)
    if not facts.goal.revision:
        return Wait(reason="Absent", awaits=Signal.NOTHING)
    return _taken(facts) or waits.start(facts, now) or moving.begin_install(facts, questions.fresh(facts, now), now)


def _taken(facts: Facts) -> Wait | None:
    """A handler that we are to write is served on a node that has nothing of ours: another installer was here."""
    taken = questions.plan_of(facts, facts.goal.revision).written & facts.served
    if not taken or facts.dirty:
        return None
    message = (
        f"CRI serves {', '.join(sorted(taken))} already; remove it with what installed it, or name another handler"
    )
    return Wait(
        reason="HandlerConflict",
        awaits=Signal.HANDLER_FREE,
        message=message,
        trouble=Problem("HandlerConflict", message),
    )


def _undo_journal(facts: Facts, now: datetime) -> Decision:
    """The machine came back with a configuration of ours that no state on the Node tells of."""
    if (kept := waits.start(facts, now)) is not None:
        return kept
    found = NodeState(uid=facts.dirty, stage=Stage.ABSENT, since=now, machine=facts.machine)
    return moving.enter(facts, found, Stage.UNCONFIGURE, now, "LeftoverFound", "the host's journal holds this runtime")


def at_failed(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """Given up on and clean: until there is another revision, or a person asks for another try."""
    if (leftover := leftovers.end_leftovers(facts, None, now)) is not None:
        return leftover
    goal = facts.goal
    if goal.uid != state.uid or not goal.revision:
        return Move(state=None, reason="Absent")
    if goal.revision == state.failed and not facts.retry:
        return Wait(reason="Failed", awaits=Signal.PERSON, message=state.error.message if state.error else "")
    return (
        waits.blocked(facts, now)
        or waits.missing(facts, state, goal.revision, now)
        or waits.start(facts, now)
        or moving.begin_install(facts, questions.fresh(facts, now), now)
    )


def at_ready(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """Installed: it leaves for another goal, for another machine, or to write again what CRI has lost."""
    if facts.tainted and facts.goal.revision == state.installed:
        return Move(state=state, reason="StartupTaintsRemoved", drop_taints=True)
    leftover = leftovers.end_leftovers(facts, state, now)
    if isinstance(leftover, EndPod):
        return leftover
    goal = questions.effective_goal(facts)
    if facts.retry and facts.goal.revision and facts.goal.uid == state.uid:
        goal = facts.goal
    if not goal.revision:
        return _remove(facts, state, now)
    if state.draining and (goal.revision == state.installed or not facts.reinstall):
        return Move(state=msgspec.structs.replace(state, draining=False), reason="Kept")
    if questions.moved(facts, state):
        return _install_again(facts, state, goal, now)
    if goal.revision != state.installed:
        return _remove(facts, state, now) if facts.reinstall else _upgrade(facts, state, goal, now)
    if state.failed and facts.goal.revision == state.installed:  # asked for once more, that one is tried again
        return Move(state=msgspec.structs.replace(state, failed="", error=None), reason="Reverted")
    plan = questions.plan_of(facts, state.installed)
    if facts.serving and not plan.handlers <= facts.served:
        return repair(facts, state, plan, now)
    if facts.retry:
        return Move(state=state, reason="NothingToRetry", clear_retry=True)
    return leftover or Wait(reason="Ready", awaits=Signal.NOTHING)


def _remove(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """By the revision that is installed; it is waited for, and the pods that use it, before a slot is asked for."""
    return (
        waits.blocked(facts, now)
        or waits.missing(facts, state, state.installed, now)
        or use.in_use(facts, state, now)
        or waits.start(facts, now)
        or moving.begin_removal(facts, state, now)
    )


def _upgrade(facts: Facts, state: NodeState, goal: Goal, now: datetime) -> Decision:
    upgrade = msgspec.structs.replace(state, target=goal.revision, attempt=1, error=None, failed="")
    return (
        waits.blocked(facts, now)
        or waits.missing(facts, state, goal.revision, now)
        or use.loses_used(facts, state, goal, now)
        or waits.start(facts, now)
        or moving.begin_install(facts, upgrade, now, reason="Upgrade")
    )


def _install_again(facts: Facts, state: NodeState, goal: Goal, now: datetime) -> Decision:
    """On another machine, or a fresh root, under the same name."""
    return (
        waits.blocked(facts, now)
        or waits.missing(facts, state, goal.revision, now)
        or waits.start(facts, now)
        or moving.begin_again(facts, state, goal, now)
    )


def repair(facts: Facts, state: NodeState, plan: Plan, now: datetime) -> Decision:
    """Configure once more, as long as that happens seldom enough to be no fight with somebody else."""
    recent = () if facts.retry else tuple(t for t in state.repairs if now - t < timedelta(hours=1))
    lost = ", ".join(sorted(plan.handlers - facts.served))
    if len(recent) >= MAX_REPAIRS:
        message = (
            f"handler {lost} was lost again after {len(recent)} repairs in an hour; find who edits the configuration"
        )
        return Wait(
            reason="Contested",
            awaits=Signal.QUIET_HOUR,
            message=message,
            until=recent[0] + timedelta(hours=1),
            stuck=Problem("Contested", message),
        )
    again = msgspec.structs.replace(state, repairs=(*recent, now), attempt=1)
    message = f"CRI does not serve {lost}"
    return waits.start(facts, now) or moving.enter(
        facts, again, Stage.CONFIGURE, now, "HandlerLost", message, clear_retry=facts.retry
    )
