"""What a status says has been seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.api import names
from reconciler.api.node import AGENT_STAGES, NodeState, Stage
from reconciler.sim import kinds
from reconciler.sim.invariants.base import Bounded, Invariant, Surroundings, Write, labels, marks, moves, states
from reconciler.sim.invariants.slots import KNOWN_AFTER
from reconciler.sim.kinds import Object
from reconciler.sim.node import SimNode

NOTICED_AFTER = 30.0
"""Seconds until a lost handler is no longer counted: an agent at rest looks every 10 s, and its report may have to wait
for 20 s of reports before it."""


class Claims(Invariant):
    """The status never claims more than was proven.

    A node becomes ready, or present, only if CRI has served all handlers of its revision since the last change of its
    configuration was begun. A NodeRuntime counts as ready (`status.nodes.ready`, condition Available) no more nodes
    than were installed and have served its handlers within the last 30 s. Those count, too, whose containerd is away,
    whose agent was dead or cut off, or whose Node left in that time, and all while no controller has led for so long.
    The counts add up, and observedGeneration is no generation to come. No node counts as ready that has another
    revision than the one that the same status names, unless it had that one within the last 120 s, or what another
    NodeRuntime of that name has left.
    """

    name = "claims"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._served: dict[tuple[str, str], float] = {}
        """Node and handler → when CRI served it last, or began to."""
        self._begun: dict[tuple[str, str], float] = {}
        """Node and runtime → when the agent's stage began."""
        self._now_served: dict[str, frozenset[str]] = {}
        self._back: dict[str, float] = {}
        """Node → when its containerd served again."""
        self._left: Bounded[tuple[str, str], float] = Bounded(1000)
        """Node and runtime that was ready there → when the Node was deleted."""
        self._had: Bounded[tuple[str, str, str], float] = Bounded(5000)
        """Node, runtime and a revision that was installed there → until when."""

    def changed(self, node: SimNode) -> Iterator[str]:
        handlers = frozenset(node.daemon.loaded.handlers) if node.daemon.serving else frozenset()
        if handlers and not self._now_served.get(node.name):
            self._back[node.name] = self.around.now
        for handler in handlers | self._now_served.get(node.name, frozenset()):
            self._served[node.name, handler] = self.around.now
        self._now_served[node.name] = handlers
        yield from ()

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.NODERUNTIMES and step.new is not None and step.of_controller:
            yield from self._status(step.name, step.new)
        if step.kind is not kinds.NODES:
            return
        if step.new is None:
            for runtime, state in states(step.old).items():
                if state.stage is Stage.READY:
                    self._left.put((step.name, runtime), self.around.now)
            return
        for runtime, old, new in moves(step):
            if old is not None and (new is None or new.installed != old.installed):
                self._had.put((step.name, runtime, old.installed), self.around.now)
            if new is not None and new.stage in AGENT_STAGES and (old is None or old.stage is not new.stage):
                self._begun[step.name, runtime] = self.around.now
            if new is not None and new.stage is Stage.READY and (old is None or old.stage is not Stage.READY):
                yield from self._ready(step, runtime, new)

    def _ready(self, step: Write, runtime: str, state: NodeState) -> Iterator[str]:
        begun = self._begun.get((step.name, runtime), 0.0)
        for handler in self._handlers(runtime, state.installed):
            if self._last(step.name, handler) < begun:
                yield f"{step.name}: {runtime} is called ready, but {handler} was not served since it was configured"

    def _last(self, node: str, handler: str) -> float:
        if handler in self._now_served.get(node, ()):
            return self.around.now
        return self._served.get((node, handler), -1.0)

    def _handlers(self, runtime: str, revision: str) -> list[str]:
        for kept in self.around.objects(kinds.CONTROLLERREVISIONS):
            ours = labels(kept).get(names.RUNTIME_LABEL) == runtime
            if ours and marks(kept).get(names.REVISION_ANNOTATION) == revision:
                return [handler["name"] for handler in (kept.get("data") or {}).get("handlers") or ()]
        return []

    def _status(self, name: str, runtime: Object) -> Iterator[str]:
        status = runtime.get("status") or {}
        counts: dict[str, int] = status.get("nodes") or {}
        observed, generation = status.get("observedGeneration") or 0, runtime["metadata"].get("generation", 0)
        if observed > generation:
            yield f"{name}: observedGeneration is {observed}, the generation is {generation}"
        total, ready = counts.get("total", 0), counts.get("ready", 0)
        if sum((status.get("stages") or {}).values()) != total:
            yield f"{name}: stages {status.get('stages')} do not add up to {total} nodes"
        if max(ready, counts.get("failed", 0), counts.get("updating", 0), counts.get("stuck", 0)) > total:
            yield f"{name}: counts are larger than their total: {counts}"
        available = any(c.get("type") == "Available" and c.get("status") == "True" for c in _conditions(status))
        if available and (ready != total or total == 0):
            yield f"{name}: Available is True with {ready} of {total} nodes ready"
        nodes, revision = self.around.objects(kinds.NODES), status.get("revision") or ""
        credible = sum(1 for node in nodes if self._credible(node, name) and self._has(node, runtime, revision))
        credible += sum(1 for left in self._left.entries.items() if self._just_left(name, *left))
        if ready > credible and self.around.led(NOTICED_AFTER):
            yield f"{name}: {ready} nodes are called ready, {credible} can be"

    def _has(self, node: Object, owner: Object, revision: str) -> bool:
        """Whether it has that revision of this NodeRuntime, as far as could be known."""
        runtime, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
        state = states(node).get(runtime)
        had = self._had.get((node["metadata"]["name"], runtime, revision))
        lately = had is not None and self.around.now - had < KNOWN_AFTER
        return state is None or (state.uid == uid and (state.installed == revision or lately))

    def _just_left(self, runtime: str, left: tuple[str, str], when: float) -> bool:
        gone = self.around.node(left[0]) is None
        return gone and left[1] == runtime and self.around.now - when < NOTICED_AFTER

    def _credible(self, node: Object, runtime: str) -> bool:
        """Whether it may be counted as ready, by what could be known."""
        where, state = node["metadata"]["name"], states(node).get(runtime)
        machine = self.around.machine(where)
        if state is None or machine is None or state.stage is not Stage.READY:
            return state is None or machine is None or not self.around.led(NOTICED_AFTER) or state.installed != ""
        if not machine.daemon.serving or not self.around.agent_lives(where, NOTICED_AFTER):
            return True
        if self.around.now - self._back.get(where, 0.0) < NOTICED_AFTER:
            return True
        wanted = self._handlers(runtime, state.installed)
        return all(self.around.now - self._last(where, handler) < NOTICED_AFTER for handler in wanted)


def _conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status.get("conditions") or []
    return found
