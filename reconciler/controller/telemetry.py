"""What the controller tells people: metrics, Events and log lines of one transition, in one place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from reconciler.api import names
from reconciler.api.node import REST, NodeState, Problem, Stage
from reconciler.api.noderuntime import NodeRuntime
from reconciler.controller import notes
from reconciler.kube.events import Recorder, regarding_node
from reconciler.phases.decision import Move

log = logging.getLogger(__name__)

WARNINGS = frozenset({"AttemptFailed", "Failed", "RolledBack", "HandlerLost", "HandlerInUse", "LeftoverFound"})
"""Reasons of moves that are Warning events; all others are Normal."""
QUIET = frozenset({"PhaseDone", "Configured", "LabelsRestored", "OldSignalCleared", "NothingToRetry"})
"""Reasons that are logged only: the stage label tells them already."""


class Metrics(Protocol):
    """What of it is counted; `metrics.controller` offers it."""

    def phase(self, runtime: str, phase: str, result: str, seconds: float) -> None: ...
    def node_patch(self, seconds: float) -> None: ...
    def stuck(self, runtime: str, stage: str) -> None: ...
    def forbidden(self, where: str) -> None: ...


class Telemetry:
    """`owner(name)` finds the NodeRuntime that an Event regards."""

    def __init__(self, recorder: Recorder, metrics: Metrics, owners: Callable[[str], NodeRuntime | None]) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._owners = owners

    def moved(self, node: str, runtime: str, before: NodeState | None, move: Move, now: datetime) -> None:
        """A transition was written."""
        after = "absent" if move.state is None else str(move.state.stage)
        fields = {"node": node, "runtime": runtime, "stage": after, "reason": move.reason}
        log.info("stage changed", extra=fields)
        if before is not None and before.stage not in REST and str(before.stage) != after:
            result = "failed" if move.reason in WARNINGS else "ok"
            self._metrics.phase(runtime, str(before.stage), result, (now - before.since).total_seconds())
        elif before is not None and move.reason == "AttemptFailed":
            self._metrics.phase(runtime, str(before.stage), "failed", (now - before.since).total_seconds())
        if move.reason not in QUIET:
            kind = "Warning" if move.reason in WARNINGS else "Normal"
            self._of_node(runtime, node, kind, move.reason, notes.note(node, move))

    def patched(self, seconds: float) -> None:
        self._metrics.node_patch(seconds)

    def stuck(self, node: str, runtime: str, state: NodeState | None, problem: Problem) -> None:
        """A deadline has passed; told once each time it begins."""
        stage = Stage.ABSENT if state is None else state.stage
        fields = {"node": node, "runtime": runtime, "stage": str(stage), "reason": problem.reason}
        log.warning("node is stuck", extra=fields)
        self._metrics.stuck(runtime, str(stage))
        self._of_node(runtime, node, "Warning", "Stuck", notes.stuck(node, stage, problem))

    def forbidden(self, where: str) -> None:
        """The API server has refused us a right; the words are in the condition, or in the log of the queue."""
        self._metrics.forbidden(where)

    def unreadable(self, node: str, runtime: str) -> None:
        """The state annotation was changed by somebody so that it cannot be read."""
        log.error("state annotation cannot be read", extra={"node": node, "runtime": runtime})
        key = names.state_annotation(runtime)
        note = f"node {node}: annotation {key} is not ours; `kubectl annotate node {node} {key}-` starts afresh"
        self._of_node(runtime, node, "Warning", "StateUnreadable", note)

    def _of_node(self, runtime: str, node: str, kind: str, reason: str, note: str) -> None:
        """An Event of one node; a warning is told on the Node too, where whoever looks after nodes looks."""
        self.event(runtime, kind, reason, note)
        if kind == "Warning":
            self._recorder.event(regarding_node(node), kind, reason, f"NodeRuntime {runtime}: {note}", "Reconcile")

    def event(self, runtime: str, kind: str, reason: str, note: str) -> None:
        """An Event regarding the NodeRuntime; none when it is gone."""
        owner = self._owners(runtime)
        if owner is not None:
            regarding = {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": runtime,
                "uid": owner.metadata.uid,
            }
            self._recorder.event(regarding, kind, reason, note, "Reconcile")
