"""The status of a NodeRuntime, from what is seen of its nodes. Pure; never claims more than was proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec

from reconciler.api.meta import Condition
from reconciler.api.node import Stage, cut
from reconciler.api.noderuntime import FailedNode, NodeCounts, NodeRuntime, NodeRuntimeStatus
from reconciler.controller.world import Outlook

FAILED_MAX = 20
"""Nodes listed in `status.failed`; the whole number is in `status.nodes`."""


def build(
    runtime: NodeRuntime,
    outlooks: Mapping[str, Outlook],
    *,
    revision: str,
    in_work: tuple[str, ...],
    halted: str,
    problem: tuple[str, str] | None,
    classes: tuple[str, ...],
    now: datetime,
) -> NodeRuntimeStatus:
    """The status that should be; transition times are kept where a condition's status is as it was."""
    counted = {name: o for name, o in outlooks.items() if o.counted}
    ready = sum(1 for o in counted.values() if o.view.done and o.view.node_ready)
    bad = sum(1 for o in counted.values() if o.view.failed)
    stuck = sum(1 for o in counted.values() if o.view.stuck)
    updating = sum(1 for o in counted.values() if not o.view.at_rest)
    counts = NodeCounts(total=len(counted), ready=ready, updating=updating, failed=bad, stuck=stuck)
    stages = Counter(str(o.state.stage if o.state else Stage.ABSENT) for o in counted.values())
    wanted = _conditions(runtime, counted, counts, halted, problem)
    return NodeRuntimeStatus(
        observed_generation=runtime.metadata.generation,
        revision=revision,
        conditions=tuple(_timed(c, runtime.status.conditions, now) for c in wanted),
        nodes=counts,
        stages=dict(sorted(stages.items())),
        in_work=in_work,
        failed=tuple(_failed(name, o) for name, o in sorted(counted.items()) if o.view.failed or o.view.stuck)[
            :FAILED_MAX
        ],
        runtime_classes=classes,
    )


def _conditions(
    runtime: NodeRuntime,
    outlooks: Mapping[str, Outlook],
    counts: NodeCounts,
    halted: str,
    problem: tuple[str, str] | None,
) -> list[Condition]:
    deleting = runtime.metadata.deletion_timestamp is not None
    ready_text = f"{counts.ready} of {counts.total} nodes are ready"
    available = counts.total > 0 and counts.ready == counts.total and not deleting
    waiting = sorted(((n, o) for n, o in outlooks.items() if not o.view.done), key=lambda pair: pair[0])
    found = [
        _condition("Available", available, "AllNodesReady" if available else "NotAllNodesReady", ready_text),
        _progress(runtime, counts, halted, waiting, deleting),
        _degraded(outlooks, counts, problem),
        _stuck(outlooks, counts),
    ]
    return [msgspec.structs.replace(c, observed_generation=runtime.metadata.generation) for c in found]


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True" if holds else "False", reason=reason, message=cut(message))


def _progress(
    runtime: NodeRuntime, counts: NodeCounts, halted: str, waiting: list[tuple[str, Outlook]], deleting: bool
) -> Condition:
    if deleting:
        text = "; ".join(f"{n}: {o.wait.reason}" for n, o in waiting[:3]) or "removing what is left"
        return _condition("Progressing", True, "Uninstalling", f"{len(waiting)} nodes to clean: {text}")
    if counts.total == 0:
        return _condition(
            "Progressing", False, "NoNodeSelected", "spec.nodeSelector matches no node that can take part"
        )
    if runtime.spec.paused:
        return _condition("Progressing", False, "Paused", "spec.paused is true: nothing new starts")
    if counts.updating == 0 and halted:
        return _condition("Progressing", False, halted, f"{len(waiting)} nodes wait")
    if waiting:
        text = "; ".join(f"{n}: {o.wait.reason}" for n, o in waiting[:3])
        return _condition("Progressing", True, "RollingOut", f"{len(waiting)} nodes to go: {text}")
    return _condition("Progressing", False, "Complete", "every node has this revision")


def _degraded(outlooks: Mapping[str, Outlook], counts: NodeCounts, problem: tuple[str, str] | None) -> Condition:
    if problem is not None:
        return _condition("Degraded", True, problem[0], problem[1])
    bad = sorted(((n, o) for n, o in outlooks.items() if o.view.failed), key=lambda pair: pair[0])
    if bad:
        name, outlook = bad[0]
        error = outlook.state.error if outlook.state else None
        why = f"{error.reason}: {error.message}" if error else outlook.wait.message
        return _condition("Degraded", True, "NodesFailed", f"{counts.failed} nodes failed; {name}: {why}")
    return _condition("Degraded", False, "AsExpected", "")


def _stuck(outlooks: Mapping[str, Outlook], counts: NodeCounts) -> Condition:
    bad = sorted(((n, o) for n, o in outlooks.items() if o.view.stuck), key=lambda pair: pair[0])
    if not bad:
        return _condition("Stuck", False, "AsExpected", "")
    name, outlook = bad[0]
    return _condition("Stuck", True, outlook.wait.reason, f"{counts.stuck} nodes stuck; {name}: {outlook.wait.message}")


def _failed(name: str, outlook: Outlook) -> FailedNode:
    error = outlook.wait.stuck or (outlook.state.error if outlook.state else None)
    stage = str(outlook.state.stage if outlook.state else Stage.ABSENT)
    if error is None:
        return FailedNode(node=name, stage=stage, reason=outlook.wait.reason, message=cut(outlook.wait.message))
    return FailedNode(node=name, stage=stage, reason=error.reason, message=cut(error.message))


def _timed(condition: Condition, before: tuple[Condition, ...], now: datetime) -> Condition:
    old = next((c for c in before if c.type == condition.type), None)
    same = old is not None and old.status == condition.status and old.last_transition_time is not None
    moment = old.last_transition_time if same and old is not None else now.replace(microsecond=0)
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        observed_generation=condition.observed_generation,
        last_transition_time=moment,
    )
