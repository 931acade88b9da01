"""When a stage becomes stuck: how long it may take, from when on, and what stands still meanwhile."""

from __future__ import annotations

from datetime import datetime, timedelta

from reconciler.api.node import AGENT_STAGES, POD_STAGES, NodeState, Stage
from reconciler.phases import questions, stop
from reconciler.phases.facts import Facts, PhasePlan

BACKOFF_BASE = 10.0
BACKOFF_MAX = 300.0
"""Seconds between tries of a phase: 10, 20, 40 … 300."""
AGENT_TIMEOUT = 180.0
"""Seconds for configure and unconfigure: twice systemd's default start timeout of 90 s."""
VERIFY_GRACE = 120.0
"""Seconds on top of the bake before a node that does not get healthy is stuck."""
LEADER_GRACE = 15.0
"""Seconds after a change of leader in which no deadline passes."""


def deadline(facts: Facts, state: NodeState) -> datetime | None:
    """When this stage becomes stuck. It runs from the end of the pause between two tries, and stands still while the
    node is NotReady, while everything is stopped (None then), and after a change of leader."""
    seconds = _allowed(facts, state)
    if seconds is None:
        return None
    begin = max(resumes(state), facts.node_ready_since or state.since)
    limit = stop.still(begin + timedelta(seconds=seconds), begin, facts.stops)
    if limit is None:
        return None
    if facts.leading_since is not None:
        limit = max(limit, facts.leading_since + timedelta(seconds=LEADER_GRACE))
    return limit


def resumes(state: NodeState) -> datetime:
    """When the pause before this try of a phase ends."""
    if state.stage not in POD_STAGES or state.attempt == 1 or state.hurried:
        return state.since
    return state.since + timedelta(seconds=min(BACKOFF_BASE * 2 ** min(state.attempt - 2, 10), BACKOFF_MAX))


def timeout(facts: Facts, state: NodeState) -> float | None:
    """Seconds that a stage may take, None at rest."""
    if state.stage in AGENT_STAGES:
        return AGENT_TIMEOUT
    if state.stage is Stage.VERIFY:
        return facts.bake + VERIFY_GRACE
    if state.stage in POD_STAGES:
        return questions.plan_of(facts, state.target).phases.get(state.stage, PhasePlan()).timeout
    return None


def _allowed(facts: Facts, state: NodeState) -> float | None:
    """`timeout`; of a phase whose revision is missing, what was written down when it began."""
    if state.stage in POD_STAGES and state.target not in facts.plans and state.deadline is not None:
        return (state.deadline - resumes(state)).total_seconds()
    return timeout(facts, state)
