"""Running pods of other people that use our handlers: a removal waits for them, unless it is forced."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from reconciler.api.node import NodeState, cut
from reconciler.phases import questions
from reconciler.phases.decision import AskUse, Decision, Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal

IN_USE_POLL = 5.0
"""Seconds between lists of the pods that use a handler: other people's pods are not watched."""


def in_use(facts: Facts, state: NodeState, now: datetime) -> Decision | None:
    """What keeps a removal waiting for the pods that use our handlers; asked before a slot is."""
    plan = questions.plan_of(facts, state.installed or state.target)
    if not plan.handlers or not questions.wrote(facts, state) or facts.force:
        return None
    if facts.in_use is None:
        return AskUse()
    users = _users(facts, plan.handlers)
    return _drain(state, users, now) if users else None


def loses_used(facts: Facts, state: NodeState, goal: Goal, now: datetime) -> Decision | None:
    """What keeps an upgrade waiting for the pods whose handler the new revision lacks; asked before a slot is. New pods
    are let in all the same: the label that would keep them out is that of the handlers which stay, too."""
    lost = questions.plan_of(facts, state.installed).handlers - questions.plan_of(facts, goal.revision).handlers
    if not lost or facts.force:
        return None
    if facts.in_use is None:
        return AskUse()
    users = _users(facts, lost)
    return _wait_for(users, f"{', '.join(sorted(lost))}, not in revision {goal.revision}", now) if users else None


def _users(facts: Facts, handlers: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted({pod for handler in handlers for pod in (facts.in_use or {}).get(handler, ())}))


def _drain(state: NodeState, users: tuple[str, ...], now: datetime) -> Decision:
    wait = _wait_for(users, "its handlers", now)
    if questions.present(state):
        drained = msgspec.structs.replace(state, draining=True)
        return Move(state=drained, reason="HandlerInUse", message=cut(wait.message))
    return wait


def _wait_for(users: tuple[str, ...], what: str, now: datetime) -> Wait:
    message = f"{len(users)} running pods use {what}, e.g. {users[0]}; end them, or set uninstall.whenInUse: Force"
    return Wait(
        reason="HandlerInUse",
        awaits=Signal.USERS_GONE,
        message=message,
        until=now + timedelta(seconds=IN_USE_POLL),
    )
