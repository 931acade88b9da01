"""Everything that is known of one node, for a person who asks about it. Reads stores only; no IO."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from reconciler.api import names
from reconciler.api.meta import Node, condition
from reconciler.api.noderuntime import NodeRuntime, UnreadableNodeRuntime
from reconciler.api.overview import AgentWord, Explanation, NodeRow, Overview, PhasePod
from reconciler.controller import goals
from reconciler.controller.pods import facts_of
from reconciler.controller.world import NODE_INDEX, World, report_of
from reconciler.kube.selectors import unmet


def explain(world: World, whole: Overview, node: Node, now: datetime) -> Explanation:
    """Of `node`, whose rows are in `whole`."""
    where = node.metadata.name
    rows = tuple(row for row in whole.nodes if row.node == where)
    return Explanation(
        time=now,
        node=where,
        stopped=whole.stopped,
        ready=condition(node.status.conditions, "Ready"),
        serving=condition(node.status.conditions, names.SERVING_CONDITION),
        contested=condition(node.status.conditions, names.CONTESTED_CONDITION),
        agent=_agent(world, node),
        runtimes=rows,
        pods=tuple(_pods(world, node)),
        unselected=_unselected(world, node, rows),
    )


def _agent(world: World, node: Node) -> AgentWord:
    report, where = report_of(node), node.metadata.name
    pods = [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in world.pods.by_index(NODE_INDEX, where)
        if pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_AGENT
    ]
    why = world.agent_missing(where)
    return AgentWord(
        pod=", ".join(pods),
        ready=not why,
        why=why,
        containerd=report.containerd,
        handlers=report.handlers,
        work=report.work,
        journal=report.journal,
    )


def _pods(world: World, node: Node) -> Iterator[PhasePod]:
    ended = report_of(node).ended
    for name in goals.runtimes_of(world, node):
        for pod in world.phase_pods(node.metadata.name, name):
            facts = facts_of(pod, ended=pod.metadata.uid in ended, asked=False)
            if facts is not None:
                yield PhasePod(
                    name=facts.name,
                    runtime=name,
                    stage=str(facts.stage),
                    attempt=facts.attempt,
                    state=facts.outcome.value,
                    created=facts.created,
                    reason=facts.reason,
                    message=facts.message,
                    deleting=facts.deleting,
                    ended=facts.ended,
                )


def _unselected(world: World, node: Node, rows: tuple[NodeRow, ...]) -> dict[str, str]:
    there = {row.runtime for row in rows}
    others = (r for r in world.runtimes.list() if r.metadata.name not in there)
    return {r.metadata.name: _why_not(r, node) for r in sorted(others, key=lambda r: r.metadata.name)}


def _why_not(runtime: NodeRuntime, node: Node) -> str:
    if isinstance(runtime, UnreadableNodeRuntime):
        return f"the object cannot be read: {runtime.error}"
    try:
        wanted = ", ".join(unmet(runtime.spec.node_selector, node.metadata.labels))
    except ValueError as error:
        return f"spec.nodeSelector cannot be read: {error}"
    return f"spec.nodeSelector does not match: it wants {wanted}" if wanted else "nothing of it is here"
