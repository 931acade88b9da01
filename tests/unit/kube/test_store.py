"""The local copy: indexes follow, and late answers to writes raise nobody from the dead."""

import msgspec

from reconciler.api.meta import Node
from reconciler.kube.store import Store


def node(name: str, version: str, *, uid: str = "u", zone: str = "z") -> Node:
    metadata = {"name": name, "uid": uid, "resourceVersion": version, "labels": {"zone": zone}}
    return msgspec.convert({"metadata": metadata}, Node)


def by_zone() -> Store[Node]:
    return Store({"zone": lambda n: [n.metadata.labels["zone"]]})


def test_an_index_follows_changes_and_removals() -> None:
    store = by_zone()
    store.put(node("a", "1", zone="x"))
    store.put(node("b", "2", zone="x"))
    store.put(node("a", "3", zone="y"))
    assert [n.metadata.name for n in store.by_index("zone", "x")] == ["b"]
    store.remove(("", "b"))
    assert store.by_index("zone", "x") == []
    assert [n.metadata.name for n in store.by_index("zone", "y")] == ["a"]


def test_a_write_is_taken_only_when_newer() -> None:
    store = by_zone()
    store.put(node("a", "10"))
    assert not store.apply_write(node("a", "9"))
    assert not store.apply_write(node("a", "10"))
    assert store.apply_write(node("a", "11"))
    kept = store.get("a")
    assert kept is not None and kept.metadata.resource_version == "11"


def test_a_write_to_a_successor_replaces_and_a_late_answer_about_its_predecessor_does_not() -> None:
    store = by_zone()
    store.put(node("a", "10", uid="old"))
    assert store.apply_write(node("a", "12", uid="new"))
    assert not store.apply_write(node("a", "11", uid="old"))


def test_a_late_answer_does_not_bring_a_removed_object_back() -> None:
    store = by_zone()
    store.put(node("a", "10"))
    store.remove(("", "a"))
    store.version = 12
    assert not store.apply_write(node("a", "11"))
    assert store.get("a") is None


def test_a_late_answer_does_not_bring_back_what_came_and_went_unseen() -> None:
    store = by_zone()
    store.version = 12
    assert not store.apply_write(node("a", "11"))
    assert store.get("a") is None


def test_an_object_that_left_the_selection_and_came_back_takes_answers_again() -> None:
    store = by_zone()
    for version in ("10", "12"):
        store.put(node("a", version))
        store.remove(("", "a"))
    store.put(node("a", "14"))
    store.version = 14
    assert store.apply_write(node("a", "15"))
