"""The stage machine of one runtime on one node (design section 4): `decide(facts, now) -> Decision`.

Rules that every branch keeps:
* A stage has one actor. Before the actor of a stage begins, no pod of another step is left: neither in
  the API nor, as the agent has seen, in CRI.
* Progress is recorded before the evidence of it is removed, so a kill between any two writes repeats
  nothing and loses nothing.
* Done signals are read before deadlines; deadlines stand still while the node cannot act.
* On the way in the binaries come before the configuration, on the way out after it.

Stages at rest are in `rest`, those at work in `work`; both go on by `moving`, the one place where a stage is entered.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from reconciler.api.node import REST, NodeState, Stage
from reconciler.phases import moving, questions, rest, stop, work
from reconciler.phases.decision import Decision, Move, Signal, Wait
from reconciler.phases.facts import Facts


def decide(facts: Facts, now: datetime) -> Decision:
    """The next step of this runtime on this node."""
    decision = _retried(facts, _next(facts, now), now) if facts.retry else _next(facts, now)
    return stop.held(facts, decision) if facts.stopped else decision


def successor(facts: Facts, state: NodeState, now: datetime) -> Stage:
    """The stage that follows when this one is done."""
    step = moving.advance(facts, state, now)
    return step.state.stage if isinstance(step, Move) and step.state is not None else Stage.ABSENT


def _next(facts: Facts, now: datetime) -> Decision:
    state = facts.state
    if state is None or state.stage is Stage.ABSENT:
        return rest.at_absent(facts, now)
    if state.stage is Stage.FAILED:
        return rest.at_failed(facts, state, now)
    if not facts.labels_true:
        return Move(state=state, reason="LabelsRestored")
    if state.stage is Stage.READY:
        return rest.at_ready(facts, state, now)
    if state.stage in questions.REMOVAL_PATH:
        return work.at_work(facts, state, now)
    return work.installing(facts, state, now)


def _retried(facts: Facts, decision: Decision, now: datetime) -> Decision:
    """A person asks for another try of what is stuck, or does not want to wait for the next one."""
    state = facts.state
    if state is None or state.stage in REST or not isinstance(decision, Wait):
        return decision
    if (decision.stuck is None and decision.awaits is not Signal.BACKOFF) or not facts.agent_ready:
        return decision
    again = msgspec.structs.replace(state, attempt=state.attempt + 1, pod=questions.pod_uid(facts, state))
    message = "a person asked for it"
    return moving.enter(facts, again, state.stage, now, "Retried", message, clear_retry=True, hurried=True)
