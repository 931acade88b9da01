"""Slots: how many nodes may be in work at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from reconciler.api.node import NodeState
from reconciler.phases.rest import MAX_REPAIRS
from reconciler.sim import kinds
from reconciler.sim.invariants.base import (
    CONTROLLER,
    Bounded,
    Invariant,
    Sent,
    Surroundings,
    Write,
    at_work,
    condition,
    is_phase_pod,
    labels,
    moves,
    states,
    step_of,
    unreadable,
)
from reconciler.sim.kinds import Object

KNOWN_AFTER = 120.0
"""Seconds after which a controller knows how many nodes there are and what their states say, also by a watch that had
died (70 s) and a list."""

ROUNDED = timedelta(microseconds=2)
"""A moment is written in whole microseconds, and read off a clock that began at another fraction of one."""


class Slots(Invariant):
    """Never more nodes in work than the spec allowed when their slots were taken.

    A slot is taken by the write that puts a node on `status.inWork`: the list may not grow beyond the spec that is in
    force at that write (a compare-and-swap on the same object). A node leaves rest, and gets a phase pod, only while it
    was on the list, when the request was sent or when it came. What is at work in the world, by the Nodes' states,
    stays within the limit, too, those left out that gave their slot back with cause: their Node was NotReady or their
    deadline passed since they began, or somebody took their handler again after three repairs within an hour; so are
    those whose state somebody made unreadable, until it has been put right for 120 s and a controller must know. No
    cause: a limit that was lowered afterwards, a percentage of nodes of which some have left in the last 120 s. A
    runtime without NodeRuntime is removed without slots, also beside a new one of its name: a person has skipped that
    node.
    """

    name = "slots"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._excused: set[tuple[str, str]] = set()
        """Runtime and node that gave their slot back with cause."""
        self._garbled: dict[tuple[str, str], float] = {}
        """Runtime and node → when a state was last seen that nobody can read."""
        self._limits: dict[tuple[str, str], int] = {}
        """What was allowed when this runtime took this node's slot."""
        self._totals: dict[str, list[tuple[float, int]]] = {}
        self._held: Bounded[tuple[str, str], frozenset[str]] = Bounded(5000)
        """User and path of a request → the runtimes whose slots that node held when it was sent."""

    def sent(self, step: Sent) -> Iterator[str]:
        if step.by.startswith(CONTROLLER) and step.method == "PATCH" and step.path.startswith("/api/v1/nodes/"):
            self._held.put((step.by, step.path), self._holders(step.path.rpartition("/")[2]))
        yield from ()

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.NODES:
            yield from self._node(step)
        elif step.kind is kinds.NODERUNTIMES and step.new is not None:
            yield from self._list(step, step.new)
        elif step.kind is kinds.PODS and step.old is None and step.new is not None and is_phase_pod(step.new):
            work = step_of(step.new)
            runtime = self.around.runtime(work.runtime)
            if step.of_controller and runtime is not None and work.node not in _in_work(runtime):
                yield f"{work.node}: phase pod {step.name} was made without a slot of {work.runtime}"

    def _node(self, step: Write) -> Iterator[str]:
        if step.old is None or step.new is None or labels(step.old) != labels(step.new):
            for each in self.around.objects(kinds.NODERUNTIMES):
                self._total(each)
        if condition(step.new, "Ready") != "True":
            self._excused.update((runtime, step.name) for runtime in states(step.any))
        for obj in (step.old, step.new):
            self._garbled.update(((runtime, step.name), self.around.now) for runtime in unreadable(obj))
        for runtime, old, new in moves(step):
            if not at_work(new):
                self._excused.discard((runtime, step.name))
                continue
            if at_work(old) or not step.of_controller:
                continue
            self._excused.discard((runtime, step.name))
            owner = self.around.runtime(runtime)
            if owner is None or new is None or owner["metadata"]["uid"] != new.uid:
                continue
            path = "" if step.request is None else step.request.path
            held = self._held.get((step.by, path)) or frozenset()
            if runtime not in held and step.name not in _in_work(owner):
                yield f"{step.name}: {runtime} went to {new.stage} without a slot"
            yield from self._world(runtime, owner, step.name)

    def _world(self, runtime: str, owner: Object, taker: str) -> Iterator[str]:
        working = []
        for node in self.around.objects(kinds.NODES):
            name = node["metadata"]["name"]
            state = states(node).get(runtime)
            if state is None or not at_work(state) or (runtime, name) in self._excused:
                continue
            if state.uid != owner["metadata"]["uid"]:
                continue
            if name not in _in_work(owner) and self.around.now - self._garbled.get((runtime, name), -1e9) < KNOWN_AFTER:
                continue
            if self._late(state):
                self._excused.add((runtime, name))
                continue
            working.append(name)
        allowed = max(self._limit(owner), self._limits.get((runtime, taker), 0))
        if len(working) > allowed:
            yield f"{runtime}: {len(working)} nodes in work, {allowed} allowed: {', '.join(sorted(working))}"

    def _list(self, step: Write, new: Object) -> Iterator[str]:
        before, after = _in_work(step.old), _in_work(new)
        if grown := [node for node in after if node not in before]:
            limit = self._limit(new)
            self._limits.update(((step.name, node), limit) for node in grown)
            self._excused.difference_update((step.name, node) for node in grown)
            if len(after) > limit:
                yield f"{step.name}: {len(after)} nodes in status.inWork, {limit} allowed: {', '.join(after)}"
        for gone in (node for node in before if node not in after):
            self._limits.pop((step.name, gone), None)
            self._gave_back(step.name, gone)

    def _gave_back(self, runtime: str, name: str) -> None:
        """A node that is stuck or NotReady by then has cause until it has one again: a new goal begins nothing."""
        node = self.around.node(name)
        state = None if node is None else states(node).get(runtime)
        if node is None or state is None:
            return
        now = self.around.cluster.options.clock.now()
        contested = sum(now - repair < timedelta(hours=1) for repair in state.repairs) >= MAX_REPAIRS
        if self._late(state) or contested or condition(node, "Ready") != "True":
            self._excused.add((runtime, name))

    def _late(self, state: NodeState) -> bool:
        return state.deadline is not None and self.around.cluster.options.clock.now() + ROUNDED >= state.deadline

    def _holders(self, node: str) -> frozenset[str]:
        owners = self.around.objects(kinds.NODERUNTIMES)
        return frozenset(owner["metadata"]["name"] for owner in owners if node in _in_work(owner))

    def _limit(self, owner: Object) -> int:
        value = (owner["spec"].get("rollout") or {}).get("maxUnavailable", 1)
        if isinstance(value, int):
            return max(value, 1)
        text = str(value).removesuffix("%")
        return max(self._total(owner) * int(text) // 100, 1) if text.isdigit() else 1

    def _total(self, owner: Object) -> int:
        """The most that it was in the time in which a controller may not have known better."""
        name, now = owner["metadata"]["name"], self.around.now
        chosen: dict[str, Any] = owner["spec"].get("nodeSelector") or {}
        total = sum(1 for node in self.around.objects(kinds.NODES) if name in states(node) or _selects(chosen, node))
        kept = [(time, was) for time, was in self._totals.get(name, ()) if now - time < KNOWN_AFTER]
        if not kept or kept[-1][1] != total:
            kept.append((now, total))
        self._totals[name] = kept
        return max(was for _, was in kept)


def _in_work(runtime: Object | None) -> list[str]:
    found: list[str] = ((runtime or {}).get("status") or {}).get("inWork") or []
    return found


def _selects(selector: dict[str, Any], node: Object) -> bool:
    """By its labels; expressions are taken to select everything, which allows more."""
    have = node["metadata"].get("labels") or {}
    return all(have.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
