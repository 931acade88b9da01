"""Deliberate defects, each a patch at run time: the model must find every one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from reconciler.api.node import NodeState, Stage
from reconciler.controller import goals, outlooks, runtime
from reconciler.controller import node as shell
from reconciler.phases import deadlines, leftovers, questions, rollout, waits, work
from reconciler.phases.decision import Decision, MakePod, Move
from reconciler.phases.facts import Facts
from tests.model import rules
from tests.model.explore import SETTLES
from tests.model.instances import Instance

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Defect:
    name: str
    patch: Patch
    rule: str
    """The invariant that tells."""
    groups: str = ""
    """What must happen for it to show."""
    faults: int = 1
    shape: dict[str, Any] = field(default_factory=dict)

    @property
    def instance(self) -> Instance:
        """The smallest that shows it."""
        groups = frozenset(self.groups.split())
        return Instance(name=self.name, groups=groups, faults=self.faults, **self.shape)


def put(owner: Any, name: str, value: Any) -> Patch:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def _unfenced(*arguments: Any, real: Any = shell.patch_of) -> Any:
    body = real(*arguments)
    del body["metadata"]["resourceVersion"]
    return body


def _of_any_attempt(facts: Facts, state: NodeState) -> Any:
    same = [p for p in facts.pods if p.stage is state.stage and p.revision == state.target]
    return same[0] if same else None


def _answers_anything(facts: Facts, state: NodeState) -> bool:
    return facts.answer is not None and facts.answer.stage is state.stage


def _facts(real: Any = goals.facts_for, **wrong: Any) -> Any:
    return lambda *a, **k: replace(real(*a, **k), **wrong)


def _verified_at_once(facts: Facts, state: NodeState, now: Any) -> Decision:
    ready = msgspec.structs.replace(state, stage=Stage.READY, installed=state.target, since=now)
    return Move(state=ready, reason="Ready")


async def _nothing_left(self: Any, owner: Any) -> bool:
    return False


def _ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.RuntimeReconciler, "_carriers", lambda self, owner: [])
    monkeypatch.setattr(runtime.RuntimeReconciler, "_left_behind", _nothing_left)


def _own_pod_is_a_leftover(monkeypatch: pytest.MonkeyPatch, real: Any = leftovers.end_leftovers) -> None:
    def end(facts: Facts, state: NodeState | None, now: Any) -> Decision | None:
        found: Decision | None = real(facts, None if state and state.stage in questions.INSTALL_PATH else state, now)
        return found

    monkeypatch.setattr(leftovers, "end_leftovers", end)


def _waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "BACKOFF_BASE", 1e9)
    monkeypatch.setattr(deadlines, "BACKOFF_MAX", 1e9)


def _makes_at_once(facts: Facts, state: NodeState, phase: object, now: object) -> Decision:
    return MakePod(state)


ONE_GOAL = {"revisions": ("r1",)}
TWO_RUNTIMES = {"runtimes": 2, "goals": 2, **ONE_GOAL}
LATE = {"slow": True, **ONE_GOAL}
TWO_NODES = {"hosts": 2, "memory": True, "goals": 2, **ONE_GOAL}

DEFECTS = (
    Defect("no precondition on the Node", put(shell, "patch_of", _unfenced), rules.READY, "lost", 2, LATE),
    Defect("the finalizer goes with the first look", _ends_early, rules.FINALIZER),
    Defect(
        "a signal of an old attempt counts", put(questions, "current_pod", _of_any_attempt), rules.SIGNAL, "payload"
    ),
    Defect("an answer to other work counts", put(questions, "answered", _answers_anything), rules.SIGNAL),
    Defect("binaries go first", put(questions, "wrote", lambda facts, state: False), rules.ORDER),
    Defect("earlier tries are forgotten", put(questions, "holds", lambda facts: False), rules.ORDER),
    Defect("slots are not counted", put(rollout, "count_of", lambda *_, **__: 9), rules.SLOTS, shape=TWO_NODES),
    Defect("nobody asks for a slot", put(waits, "start", lambda facts, now: None), rules.HOLDS),
    Defect("the barrier is ignored", put(goals, "facts_for", _facts(serving=True)), rules.BARRIER, "containerd"),
    Defect("two runtimes at work", put(goals, "facts_for", _facts(free=True)), rules.ACTORS, shape=TWO_RUNTIMES),
    Defect("ready without a look at CRI", put(work, "_verify", _verified_at_once), rules.READY, "lost"),
    Defect("a pod goes before its result is kept", _own_pod_is_a_leftover, rules.EVIDENCE),
    Defect("an agent at work is not waited for", put(work, "_make", _makes_at_once), rules.ACTORS, "agent"),
    Defect(
        "a failed look is forgotten", put(outlooks, "step", lambda *_, **__: None), rules.HOLDS, "crash", 2, TWO_NODES
    ),
    Defect("the stop is not asked for", put(goals, "facts_for", _facts(stopped="")), rules.STOPPED, "stop"),
    Defect("a backoff does not end", _waits_for_ever, SETTLES, "payload", shape=ONE_GOAL),
)
