"""One row of the read model: what the controller's own facts and decision come to, in words. Reads stores only."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from reconciler.api import names
from reconciler.api.meta import Node, condition
from reconciler.api.node import REST, Problem, Stage
from reconciler.api.overview import Barrier, NodeRow, Verdict
from reconciler.controller import goals
from reconciler.controller.advice import advice
from reconciler.controller.sentences import Scene, say
from reconciler.controller.world import World, states
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.facts import Facts
from reconciler.phases.rollout import View

UNREADABLE = "unknown"
"""Stage of a node whose state annotation cannot be read."""
UNTIMED = frozenset({Signal.NODE_READY, Signal.SLOT, Signal.BACKOFF})
"""While a node waits for these, no deadline passes."""
AT_WORK = frozenset(
    {Signal.AGENT_REPORT, Signal.BAKE, Signal.POD_STARTED, Signal.PAYLOAD_EXIT, Signal.PAYLOAD_LABEL, Signal.POD_GONE}
)
"""Waiting for these is how a stage looks while all is well."""


def build(world: World, node: Node, name: str, facts: Facts, wait: Wait, view: View | None, now: datetime) -> NodeRow:
    """The row of runtime `name` on `node`; `view` is None where no NodeRuntime of that name is left."""
    failed = view is not None and view.failed
    scene = Scene(
        name=name,
        node=node,
        runtime=world.runtime(name),
        facts=facts,
        wait=wait,
        awaits=_awaits(facts, wait, failed),
        deselected_until=_deselected_until(world, node, name),
        now=now,
    )
    said = say(scene)
    state = facts.state
    error = wait.stuck or wait.trouble or (None if state is None else state.error)
    return NodeRow(
        runtime=name,
        node=node.metadata.name,
        stage=str(scene.stage),
        verdict=_verdict(scene, failed),
        reason=wait.reason,
        awaits=str(scene.awaits),
        since=None if state is None else state.since,
        deadline=None if scene.awaits in UNTIMED else scene.limit,
        attempt=1 if state is None else state.attempt,
        waits_for=said.waits_for,
        last_seen=said.last_seen,
        next=said.next,
        advice=_advice(world, scene, error, failed=failed),
        barrier=_barrier(scene),
        error=error,
        revision=_revision(facts),
    )


def unreadable(world: World, node: Node, name: str) -> NodeRow:
    """Of a node whose state annotation was changed by somebody."""
    key = names.state_annotation(name)
    return NodeRow(
        runtime=name,
        node=node.metadata.name,
        stage=UNREADABLE,
        verdict=Verdict.STUCK,
        reason="StateUnreadable",
        awaits=str(Signal.PERSON),
        waits_for=f"that annotation {key} is removed",
        last_seen=f"annotation {key} is not as it was written",
        next="nothing is done on this node until then",
        advice=_advise(world, "StateUnreadable", node, name),
        error=Problem("StateUnreadable", f"annotation {key} cannot be read"),
    )


def refused(world: World, node: Node, name: str, before: NodeRow | None, problem: Problem) -> NodeRow:
    """Of a node whose next step the API server has refused; `before` is what its row was."""
    state = states(node).get(name)
    row = before or NodeRow(
        runtime=name,
        node=node.metadata.name,
        stage=str(Stage.ABSENT if state is None else state.stage),
        verdict=Verdict.WAITING,
        reason=problem.reason,
        awaits=str(Signal.CONTROLLER),
        since=None if state is None else state.since,
    )
    return msgspec.structs.replace(
        row,
        verdict=Verdict.STUCK if row.verdict is Verdict.STUCK else Verdict.WAITING,
        reason=problem.reason,
        awaits=str(Signal.CONTROLLER),
        waits_for="that the API server accepts the next step",
        last_seen=f"it was refused: {problem.message}",
        next="it is tried again, every minute at last",
        advice=_advise(world, problem.reason, node, name),
        error=problem,
    )


def _awaits(facts: Facts, wait: Wait, failed: bool) -> Signal:
    """A node at rest has nothing to do; whether all is well there is another question."""
    if wait.awaits is not Signal.NOTHING or facts.state is None:
        return wait.awaits
    if not facts.node_ready:
        return Signal.NODE_READY
    return Signal.PERSON if failed else Signal.NOTHING


def _verdict(scene: Scene, failed: bool) -> Verdict:
    if scene.wait.stuck is not None:
        return Verdict.STUCK
    if failed:
        return Verdict.FAILED
    if scene.awaits is Signal.ANOTHER_NODE:
        return Verdict.ASIDE
    if scene.awaits is Signal.NOTHING:
        return Verdict.ABSENT if scene.state is None else Verdict.OK
    if scene.wait.trouble is not None or scene.stage in REST or scene.awaits not in AT_WORK:
        return Verdict.WAITING
    return Verdict.WORKING


def _barrier(scene: Scene) -> Barrier:
    facts = scene.facts
    if facts.serving:
        return Barrier.OPEN
    serving = condition(scene.node.status.conditions, names.SERVING_CONDITION)
    believed = facts.agent_ready and facts.node_ready and not goals.rebooted(scene.node, scene.report)
    closed = serving is not None and serving.status == "False"
    return Barrier.CLOSED if closed and believed else Barrier.UNKNOWN


def _advice(world: World, scene: Scene, error: Problem | None, *, failed: bool) -> str:
    """What to do; nothing while all goes its way."""
    retry = f"`kubectl reconciler retry {scene.node.metadata.name}`"
    pod = scene.pod
    where = "" if pod is None else pod.name
    if failed:
        cause = _advise(world, error.reason if error else "", scene.node, scene.name, where)
        return f"{cause or 'mend the cause'}; then {retry}"
    if scene.awaits is Signal.ANOTHER_NODE:
        return "nothing, or leave it out of spec.nodeSelector"
    if _verdict(scene, failed) in (Verdict.OK, Verdict.ABSENT, Verdict.WORKING):
        return ""
    causes = (_advise(world, reason, scene.node, scene.name, where) for reason in _reasons(scene, error))
    cause = next((told for told in causes if told), "")
    if scene.wait.stuck is None:
        return cause
    return f"{cause or f'see {_log(world)}'}; it goes on by itself then, or {retry}"


def _reasons(scene: Scene, error: Problem | None) -> list[str]:
    """Why it waits, the most telling reason first."""
    serving = condition(scene.node.status.conditions, names.SERVING_CONDITION)
    of_barrier = serving.reason if serving is not None and scene.awaits is Signal.CONTAINERD else ""
    return [reason for reason in (of_barrier, error.reason if error else "", scene.wait.reason) if reason]


def _advise(world: World, reason: str, node: Node, name: str, pod: str = "") -> str:
    return advice(reason, namespace=world.namespace, node=node.metadata.name, runtime=name, pod=pod)


def _log(world: World) -> str:
    return f"`kubectl -n {world.namespace} logs -l {names.COMPONENT_LABEL}={names.COMPONENT_CONTROLLER}`"


def _revision(facts: Facts) -> str:
    state = facts.state
    return facts.goal.revision if state is None else state.target or state.installed or state.failed


def _deselected_until(world: World, node: Node, name: str) -> datetime | None:
    since = world.deselected_since.get((name, node.metadata.name))
    return None if since is None else since + timedelta(seconds=goals.DESELECT_DELAY)
