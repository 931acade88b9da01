"""The store against a model: what it holds, its indexes, and what it says was told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from reconciler.api.meta import Node
from reconciler.kube.store import Store

NAMES = st.sampled_from(("a", "b", "c"))
ZONES = st.sampled_from(("x", "y", ""))
EXAMPLES = settings(max_examples=100, stateful_step_count=50)
FOUND_WITHIN = settings(EXAMPLES, print_blob=False, report_multiple_bugs=False)


def node(name: str, uid: int, version: int, zone: str) -> Node:
    metadata = {"name": name, "uid": f"uid-{uid}", "resourceVersion": str(version), "labels": {"zone": zone}}
    return msgspec.convert({"metadata": metadata}, Node)


def zones(obj: Any) -> list[str]:
    """A node without a zone is in none; one in x is found under a second value as well."""
    zone = obj.metadata.labels["zone"]
    return {"": [], "x": ["x", "first"], "y": ["y"]}[zone]


class StoreMachine(RuleBasedStateMachine):
    """The server's changes come in order; answers of our writes come before or after the change that they made."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[Node] = Store({"zone": zones})
        self.held: dict[str, Node] = {}
        self.told: dict[str, Node | None] = {}
        self.version = 10
        self.uids = 0
        self.written: list[Node] = []

    def _made(self, name: str, zone: str, *, anew: bool) -> Node:
        self.version += 1
        self.uids += anew or name not in self.held
        uid = self.uids if anew or name not in self.held else int(self.held[name].metadata.uid.removeprefix("uid-"))
        return node(name, uid, self.version, zone)

    @rule(name=NAMES, zone=ZONES, anew=st.booleans())
    def show(self, name: str, zone: str, anew: bool) -> None:
        """An event, or an object of a list."""
        obj = self._made(name, zone, anew=anew)
        before = self.held.get(name)
        assert self.store.settle(("", name)) == self.told.get(name, before)
        assert self.store.put(obj) == before
        self.store.version = self.version
        self.held[name] = obj
        self.told.pop(name, None)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.version += 1
        before = self.held.pop(name, None)
        assert self.store.settle(("", name)) == self.told.pop(name, before)
        assert self.store.remove(("", name)) == before
        self.store.version = self.version

    @rule(name=NAMES, zone=ZONES, anew=st.booleans())
    def write(self, name: str, zone: str, anew: bool) -> None:
        self.written.append(self._made(name, zone, anew=anew))

    @rule(place=st.integers(0, 5))
    def answer(self, place: int) -> None:
        if place >= len(self.written):
            return
        obj = self.written.pop(place)
        name, version = obj.metadata.name, int(obj.metadata.resource_version)
        before = self.held.get(name)
        newer = version > self.store.version and (before is None or version > int(before.metadata.resource_version))
        assert self.store.apply_write(obj) is newer
        if newer:
            self.told.setdefault(name, before)
            self.held[name] = obj

    @rule(name=NAMES)
    def part(self, name: str) -> None:
        """The end of what was there before a write is told."""
        if self.told.get(name) is not None:
            self.store.part(("", name))
            self.told[name] = None

    @invariant()
    def holds_what_it_was_given(self) -> None:
        assert {n.metadata.name: n for n in self.store.list()} == self.held
        assert len(self.store) == len(self.held)
        assert self.store.keys() == {("", name) for name in self.held}
        for name in ("a", "b", "c"):
            assert self.store.get(name) == self.held.get(name)
            assert self.store.told(("", name)) == self.told.get(name, self.held.get(name))

    @invariant()
    def indexes_are_those_of_the_objects(self) -> None:
        for value in ("x", "first", "y", ""):
            found = sorted(n.metadata.name for n in self.store.by_index("zone", value))
            assert found == sorted(name for name, n in self.held.items() if value in zones(n))


def test_the_store_is_its_model() -> None:
    run_state_machine_as_test(StoreMachine, settings=EXAMPLES)


def test_an_index_that_is_not_taken_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "_unindex", lambda self, key, old: None)
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(StoreMachine, settings=FOUND_WITHIN)
