"""What keeps a node waiting, in each stage and before the first: with its reason, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.api.node import NodeState, Problem, cut
from reconciler.phases import deadlines
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.facts import Facts

AGENT_GRACE = 60.0
"""Seconds that a node may be without an agent before it is told of: one that joins has to pull its image first."""


def waiting(
    facts: Facts,
    state: NodeState | None,
    now: datetime,
    awaits: Signal,
    reason: str,
    message: str,
    trouble: Problem | None = None,
    until: datetime | None = None,
) -> Wait:
    """Wait until the deadline, or `until` if that is sooner; a second try is in trouble for what ended the first."""
    limit = None if state is None else deadlines.deadline(facts, state)
    trouble = trouble or (state.error if state is not None and state.attempt > 1 else None)
    if limit is None or now < limit:
        dues = [due for due in (limit, until) if due is not None]
        return Wait(reason=reason, awaits=awaits, message=message, until=min(dues, default=None), trouble=trouble)
    stuck = Problem(reason, cut(message))
    return Wait(reason=reason, awaits=awaits, message=message, stuck=stuck, trouble=trouble)


def missing(facts: Facts, state: NodeState, revision: str, now: datetime) -> Wait | None:
    """What keeps a node waiting whose ControllerRevision is not there: no step of it is passed over. One that went with
    its NodeRuntime is not waited for."""
    if not revision or revision in facts.plans or not facts.owned:
        return None
    message = f"ControllerRevision of revision {revision} is not there, and nothing else says how"
    lost = Problem("RevisionMissing", message)
    return waiting(facts, state, now, Signal.REVISION, lost.reason, message, lost)


def not_ready() -> Wait:
    """Until the Node is Ready: what runs there goes on, and its deadline stands still."""
    return Wait(
        reason="NodeNotReady",
        awaits=Signal.NODE_READY,
        message="the node is NotReady; it goes on when it is Ready again",
    )


def agentless(facts: Facts, now: datetime) -> Wait:
    """Without its agent a node begins nothing."""
    lost = Problem("AgentMissing", cut(facts.agent_reason))
    told = (facts.agent_lost or now) + timedelta(seconds=AGENT_GRACE)
    if now < told:
        return Wait(reason=lost.reason, awaits=Signal.AGENT, message=lost.message, until=told)
    return Wait(reason=lost.reason, awaits=Signal.AGENT, message=lost.message, trouble=lost)


def blocked(facts: Facts, now: datetime) -> Wait | None:
    """What keeps a node from leaving rest even with a slot; waiting for it holds none."""
    if facts.set_aside:
        return Wait(reason="SetAside", awaits=Signal.ANOTHER_NODE, message=facts.set_aside)
    if not facts.node_ready:
        return not_ready()
    if not facts.agent_ready:
        return agentless(facts, now)
    if not facts.free:
        return Wait(
            reason="OtherRuntimeAtWork",
            awaits=Signal.OTHER_RUNTIME,
            message="another runtime is at work on this node",
        )
    return None


def start(facts: Facts, now: datetime) -> Wait | None:
    """What keeps a node from leaving rest, or None."""
    if (kept := blocked(facts, now)) is not None:
        return kept
    if not facts.slot:
        return Wait(reason="WaitingForSlot", awaits=Signal.SLOT, message="its turn has not come", wants_slot=True)
    return None
