"""Deadlines: what lasts too long is told of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from reconciler.api import names
from reconciler.api.node import NodeState
from reconciler.phases.deadlines import LEADER_GRACE
from reconciler.sim import kinds
from reconciler.sim.clock import VirtualClock
from reconciler.sim.cluster import Cluster
from reconciler.sim.invariants.base import Invariant, Surroundings, Write, states
from reconciler.sim.kinds import Object

CONFIGMAPS = kinds.named("ConfigMap")
NOTICED_WITHIN = 120.0
"""Seconds: a watch that has died is noticed after 70, then a list; the status is written once a second."""


class Deadlines(Invariant):
    """A stage that lasts beyond its deadline is told of, whoever leads by then.

    Told of in `status.failed`. Due is the deadline in the Node's state, or as much time after the Node became Ready,
    and not before one controller has led for 15 s; 120 s later it is a breach. Not judged: a Node that is not Ready; a
    NodeRuntime that is gone, another one, or paused; a stage that began before `stop` was over; clocks that are wrong.
    """

    name = "deadlines"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._began: dict[tuple[str, str], tuple[object, float]] = {}
        """Node and runtime → the stage and try it is in, and since when, by the loop."""
        self._ready: dict[str, float] = {}
        """Node → since when it is Ready."""
        self._hindered: dict[str, float] = {}
        """NodeRuntime → when it was paused last; "" → when everything was stopped, or a clock was wrong, last."""

    def wrote(self, step: Write) -> Iterator[str]:
        now = self.around.now
        if step.kind is CONFIGMAPS and step.name == names.STOP_NAME:
            self._hindered[""] = now
        elif step.kind is kinds.NODERUNTIMES:
            if any((side or {}).get("spec", {}).get("paused") for side in (step.old, step.new)):
                self._hindered[step.name] = now
        elif step.kind is kinds.NODES:
            self._node(step, now)
        yield from ()

    def _node(self, step: Write, now: float) -> None:
        if not _is_ready(step.new):
            self._ready.pop(step.name, None)
        else:
            self._ready.setdefault(step.name, now)
        here = states(step.new)
        for runtime, state in here.items():
            place = (state.uid, state.stage, state.target, state.attempt, state.since)
            if self._began.get((step.name, runtime), (None, 0.0))[0] != place:
                self._began[step.name, runtime] = (place, now)
        for key in [key for key in self._began if key[0] == step.name and key[1] not in here]:
            del self._began[key]

    def ticked(self) -> Iterator[str]:
        if _wrong_clocks(self.around.cluster):
            self._hindered[""] = self.around.now
        if not self.around.led(LEADER_GRACE + NOTICED_WITHIN):
            return
        for (node, runtime), (_, began) in self._began.items():
            found = self.around.node(node)
            state = states(found).get(runtime)
            owner = self.around.runtime(runtime)
            if state is not None and state.deadline is not None and owner is not None:
                yield from self._late(node, runtime, state, state.deadline, owner, began)

    def _late(
        self, node: str, runtime: str, state: NodeState, deadline: datetime, owner: Object, began: float
    ) -> Iterator[str]:
        ready = self._ready.get(node)
        stopped = self.around.cluster.server.store.get(CONFIGMAPS, (self._namespace, names.STOP_NAME)) is not None
        if ready is None or stopped or owner["metadata"]["uid"] != state.uid or owner["spec"].get("paused"):
            return
        if max(self._hindered.get("", -1.0), self._hindered.get(runtime, -1.0)) > began:
            return
        due = max(began, ready) + (deadline - state.since) / timedelta(seconds=1) + NOTICED_WITHIN
        if self.around.now > due and node not in _told(owner):
            what = f"{runtime} is in {state.stage}, attempt {state.attempt}"
            yield f"{node}: {what}, past its deadline, and nobody says so"

    @property
    def _namespace(self) -> str:
        return self.around.cluster.options.namespace


def _wrong_clocks(cluster: Cluster) -> bool:
    clock = cluster.options.clock
    jumped = isinstance(clock, VirtualClock) and clock.jump != timedelta()
    own = (*(replica.clock for replica in cluster.replicas), *(node.clock for node in cluster.nodes.values()))
    return jumped or any(clock.off != timedelta() for clock in own)


def _is_ready(node: Object | None) -> bool:
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _told(owner: Object) -> list[str]:
    failed = (owner.get("status") or {}).get("failed") or ()
    return [entry.get("node", "") for entry in failed]
