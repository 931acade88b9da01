"""The read model over a World: what was noted at the last look at each node, and each NodeRuntime's sums.

A row is made when a node is looked at (`outlooks.note`), from the same facts and the same decision; reading the
overview only collects. What concerns a whole NodeRuntime (a halt, a refused step) is laid over the rows here.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from reconciler.api import names
from reconciler.api.meta import condition
from reconciler.api.node import Problem
from reconciler.api.noderuntime import NodeRuntime
from reconciler.api.overview import NodeRow, Overview, RuntimeRow, Stopped, Verdict
from reconciler.controller import rows, status
from reconciler.controller.halts import why
from reconciler.controller.outlooks import admission
from reconciler.controller.world import Stopping, World
from reconciler.phases.decision import Signal


def overview(world: World, now: datetime) -> Overview:
    """Everything that was noted, by runtime and node."""
    runtimes, nodes = [], []
    for name in sorted({r.metadata.name for r in world.runtimes.list()} | set(world.rows) | set(world.refused)):
        runtime = world.runtime(name)
        row = RuntimeRow(name=name) if runtime is None else _runtime(world, runtime)
        mine = _rows(world, name, row.halted)
        nodes.extend(mine)
        if runtime is not None or mine:
            aside = sum(1 for node in mine if node.verdict is Verdict.ASIDE)
            runtimes.append(msgspec.structs.replace(row, set_aside=aside))
    return Overview(time=now, stopped=_stopped(world.stopping), runtimes=tuple(runtimes), nodes=tuple(nodes))


def _stopped(stopping: Stopping) -> Stopped | None:
    if not stopping.words:
        return None
    if stopping.found is None:  # nobody can tell, which holds everything as well
        return Stopped(reason=stopping.words)
    data = stopping.found.data
    return Stopped(
        reason=data.get(names.STOP_REASON, ""),
        by=data.get(names.STOP_BY, ""),
        since=stopping.found.metadata.creation_timestamp,
    )


def _rows(world: World, name: str, halted: str) -> list[NodeRow]:
    found = world.rows.get(name, {})
    if refused := world.refused.get(name):
        found = {**found, **_refused(world, name, found, refused)}
    ordered = (found[node] for node in sorted(found))
    if not halted:
        return [*ordered]
    return [_halted(row, halted) if row.awaits == Signal.SLOT else row for row in ordered]


def _refused(world: World, name: str, found: dict[str, NodeRow], problems: dict[str, Problem]) -> dict[str, NodeRow]:
    laid = {}
    for where, problem in problems.items():
        node = world.nodes.get(where)
        if node is not None:
            laid[where] = rows.refused(world, node, name, found.get(where), problem)
    return laid


def _halted(row: NodeRow, halted: str) -> NodeRow:
    return msgspec.structs.replace(row, next=f"nothing yet: {halted}")


def _runtime(world: World, runtime: NodeRuntime) -> RuntimeRow:
    name = runtime.metadata.name
    counted = [o for o in world.outlooks.get(name, {}).values() if o.counted]
    counts = status.counts(counted)
    return RuntimeRow(
        name=name,
        total=counts.total,
        ready=counts.ready,
        updating=counts.updating,
        failed=counts.failed,
        stuck=counts.stuck,
        stages=status.stages(counted),
        paused=runtime.spec.paused,
        halted=_halt(world, runtime, counts.updating),
        problem=world.problems.get(name) or _degraded(runtime),
        deleting=runtime.metadata.deletion_timestamp is not None,
        revision=runtime.status.revision,
    )


def _halt(world: World, runtime: NodeRuntime, updating: int) -> str:
    """A canary at work holds the rest back, and that is no halt."""
    if world.stopping.words:
        return why("Stopped", runtime.metadata.name)
    reason = "Paused" if runtime.spec.paused else admission(world, runtime).halted
    return "" if reason == "Canary" and updating else why(reason, runtime.metadata.name)


def _degraded(runtime: NodeRuntime) -> Problem | None:
    """What the NodeRuntime says of itself: a node in trouble, or a refusal that only the leader knows of."""
    found = condition(runtime.status.conditions, "Degraded")
    return Problem(found.reason, found.message) if found is not None and found.status == "True" else None
