"""Breadth first through every reachable state; then backwards, for what must stay possible and what must come."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.model.controller import Controller, Edge
from tests.model.environment import Environment
from tests.model.rules import Rules
from tests.model.system import System, canonical

KINDS = ("progress", "fault", "goal", "late")
STAYS = "what has settled stays so"
SETTLES = "in a fair world without disturbances every node gets where it should be"


@dataclass
class Outcome:
    """What an exploration came to."""

    name: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    """Of a processor."""
    checked: dict[str, int] = field(default_factory=dict)
    breaches: list[tuple[str, list[str]]] = field(default_factory=list)
    """What is broken, and the shortest way there."""
    complete: bool = True
    """False: there are more states than it was allowed to look at."""


class Explorer:
    def __init__(self, name: str, rules: Rules, controller: Controller, environment: Environment, limit: int) -> None:
        self._outcome = Outcome(name)
        self._rules, self._controller, self._environment = rules, controller, environment
        self._limit = limit
        self._ids: dict[System, int] = {}
        self._states: list[System] = []
        self._depth = array("i")
        self._parent = array("i")
        self._words: list[str] = []
        self._from, self._to, self._kind = array("i"), array("i"), array("b")
        self._said: set[str] = set()

    def run(self, start: System, wanted: str = "") -> Outcome:
        """`wanted`: a rule with whose first breach it is enough."""
        begun = time.process_time()
        self._add(canonical(start), -1, "the beginning", 0)
        here = 0
        while here < len(self._states):
            if len(self._states) > self._limit:
                self._outcome.complete = False
                break
            self._expand(here)
            here += 1
            if wanted and any(what.startswith(wanted) for what, _ in self._outcome.breaches):
                break
        self._outcome.states, self._outcome.transitions = len(self._states), len(self._from)
        self._outcome.depth = max(self._depth)
        self._outcome.checked = dict(self._rules.checked)
        self._outcome.seconds = time.process_time() - begun
        return self._outcome

    def _expand(self, here: int) -> None:
        system = self._states[here]
        self._rules.state(system)
        for edge in self._edges(system):
            self._step(here, edge)
        for broken in self._rules.broken:
            self._breach(broken, here)
        self._rules.broken.clear()

    def _edges(self, system: System) -> Iterator[Edge]:
        for edges in (self._controller.edges(system), self._environment.edges(system)):
            for edge in edges:
                if edge.kind == "fault" or edge.kind == "late":
                    if system.faults == 0:
                        continue
                    if system.faults > 0:
                        edge = edge._replace(system=edge.system._replace(faults=system.faults - 1))
                elif edge.kind == "goal":
                    if system.goals == 0:
                        continue
                    if system.goals > 0:
                        edge = edge._replace(system=edge.system._replace(goals=system.goals - 1))
                yield edge

    def _step(self, here: int, edge: Edge) -> None:
        there = canonical(edge.system)
        known = self._ids.get(there)
        if known is None:
            known = self._add(there, here, edge.words, self._depth[here] + 1)
        if known != here:
            self._from.append(here)
            self._to.append(known)
            self._kind.append(KINDS.index(edge.kind))

    def _add(self, system: System, parent: int, words: str, depth: int) -> int:
        number = self._ids[system] = len(self._states)
        self._states.append(system)
        self._parent.append(parent)
        self._words.append(words)
        self._depth.append(depth)
        return number

    # --- backwards ---

    def can_reach(self, rule: str, good: Callable[[System], bool], kinds: tuple[str, ...] = KINDS) -> None:
        """From every state a good one can be reached, by transitions of `kinds`."""
        marked = bytearray(good(s) for s in self._states)
        self._count(rule)
        self._mark(marked, kinds)
        lost = marked.find(0)
        if lost >= 0:
            self._breach(f"{rule}: not from here ({marked.count(0)} such states)", lost)

    def stays(self, good: Callable[[System], bool]) -> None:
        """Progress leads from good states to good ones only."""
        fine = bytearray(good(s) for s in self._states)
        self._count(STAYS)
        progress = KINDS.index("progress")
        for source, target, kind in zip(self._from, self._to, self._kind, strict=True):
            if kind == progress and fine[source] and not fine[target]:
                self._breach(STAYS, target)
                return

    def _mark(self, marked: bytearray, kinds: tuple[str, ...]) -> None:
        wanted = {KINDS.index(k) for k in kinds}
        before: list[list[int]] = [[] for _ in self._states]
        for source, target, kind in zip(self._from, self._to, self._kind, strict=True):
            if kind in wanted and not marked[source]:
                before[target].append(source)
        todo = [n for n, good in enumerate(marked) if good]
        while todo:
            for source in before[todo.pop()]:
                if not marked[source]:
                    marked[source] = 1
                    todo.append(source)

    # --- telling ---

    def _count(self, rule: str) -> None:
        self._outcome.checked[rule] = len(self._states)

    def _breach(self, what: str, where: int) -> None:
        if what in self._said:
            return
        self._said.add(what)
        self._outcome.breaches.append((what, [*self.trace(where), f"=> {self.show(where)}"]))

    def trace(self, where: int) -> list[str]:
        steps = []
        while where >= 0:
            steps.append(self._words[where])
            where = self._parent[where]
        return steps[::-1]

    def show(self, where: int) -> str:
        return str(self._states[where])
