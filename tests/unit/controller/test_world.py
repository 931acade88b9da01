"""A revision's data is decoded once, and forgotten with its ControllerRevision."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from reconciler.api import names
from reconciler.api.meta import Condition, ControllerRevision, Node, NodeStatus, ObjectMeta, Pod, PodSpec
from reconciler.controller import world as module
from reconciler.controller.goals import facts_for
from reconciler.controller.world import NODE_INDEX, World
from reconciler.kube.store import Store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def revision(number: int, handler: str, uid: str = "") -> ControllerRevision:
    meta = ObjectMeta(name=f"kata-r{number}", namespace="ns", uid=uid or f"u{number}", resource_version=str(number))
    return ControllerRevision(metadata=meta, data=msgspec.Raw(b'{"handlers": [{"name": "%s"}]}' % handler.encode()))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """UIDs in the order in which they were decoded."""
    uids: list[str] = []
    real = module._decode

    def counted(kept: ControllerRevision) -> object:
        uids.append(kept.metadata.uid)
        return real(kept)

    monkeypatch.setattr(module, "_decode", counted)
    return uids


def world() -> World:
    return World(
        namespace="ns",
        nodes=Store(),
        pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
        runtimes=Store(),
        revisions=Store(),
        classes=Store(),
    )


def handlers(it: World, name: str) -> list[str]:
    data = it.revision("kata", name)
    return [] if data is None else [handler.name for handler in data.handlers]


def test_a_revision_is_decoded_once(decoded: list[str]) -> None:
    it = world()
    it.revisions.put(revision(1, "a"))
    assert [handlers(it, "r1") for _ in range(3)] == [["a"]] * 3
    assert decoded == ["u1"]


def test_another_revision_under_the_same_name_is_another(decoded: list[str]) -> None:
    it = world()
    it.revisions.put(revision(1, "a"))
    assert handlers(it, "r1") == ["a"]
    it.revisions.put(revision(1, "b", uid="u9"))
    assert handlers(it, "r1") == ["b"]
    assert decoded == ["u1", "u9"]


def test_no_more_is_remembered_than_the_store_holds() -> None:
    it = world()
    for number in range(50):
        it.revisions.put(revision(number, "a"))
        assert handlers(it, f"r{number}") == ["a"]
        it.revisions.remove(("ns", f"kata-r{number}"))
    assert set(it._decoded) == {"u49"}


def test_what_cannot_be_decoded_is_tried_once(decoded: list[str]) -> None:
    it = world()
    broken = ControllerRevision(metadata=revision(1, "a").metadata, data=msgspec.Raw(b"[]"))
    it.revisions.put(broken)
    assert [it.revision("kata", "r1") for _ in range(2)] == [None, None]
    assert decoded == ["u1"]


@pytest.mark.parametrize(("status", "told"), [("True", "put back twice"), ("False", ""), ("Unknown", "")])
def test_a_contested_configuration_is_a_fact_while_its_condition_is_true(status: str, told: str) -> None:
    contested = Condition(type=names.CONTESTED_CONDITION, status=status, message="put back twice")
    node = Node(metadata=ObjectMeta(name="node-1"), status=NodeStatus(conditions=(contested,)))
    assert facts_for(world(), node, "kata", None, NOON, in_use=None).contested == told


def test_a_node_is_not_free_for_a_runtime_while_a_phase_pod_of_another_is_there() -> None:
    """A payload that has said by its label that it is done sleeps on until its pod has been ended."""
    it = world()
    labels = {names.COMPONENT_LABEL: names.COMPONENT_PHASE, names.RUNTIME_LABEL: "kata"}
    it.pods.put(Pod(metadata=ObjectMeta(name="p", namespace="ns", uid="p1", labels=labels), spec=PodSpec("node-1")))
    node = Node(metadata=ObjectMeta(name="node-1"))
    assert not facts_for(it, node, "wasm", None, NOON, in_use=None).free
    assert facts_for(it, node, "kata", None, NOON, in_use=None).free
    it.gone.add("p1")
    assert facts_for(it, node, "wasm", None, NOON, in_use=None).free


def test_a_node_is_not_free_while_nobody_can_read_what_another_runtime_does_there() -> None:
    node = Node(metadata=ObjectMeta(name="node-1", annotations={names.state_annotation("kata"): "{"}))
    assert not facts_for(world(), node, "wasm", None, NOON, in_use=None).free
    assert facts_for(world(), node, "kata", None, NOON, in_use=None).free
