"""Create, replace and patch: what the server sets, preconditions, what nulls and lists in patches mean."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.conformance.api import NODES, RUNTIME_CLASSES, Api, Object, named

STALE = "the object has been modified; please apply your changes to the latest version and try again"


async def test_the_server_sets_what_is_its_own(api: Api) -> None:
    times = {"creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}
    made = await api.make(api.maps, named("m", uid="mine", **times))
    assert made.meta["uid"] != "mine"
    assert made.meta["creationTimestamp"] != "2001-01-01T00:00:00Z"
    assert "deletionTimestamp" not in made.meta
    assert made.meta["namespace"] == api.name
    assert (made.body["kind"], made.body["apiVersion"]) == ("ConfigMap", "v1")


async def test_creating_what_exists_is_409_already_exists(api: Api) -> None:
    await api.make(api.maps, named("m"))
    answer = await api("POST", api.maps, named("m"))
    assert answer.said == (409, "AlreadyExists")
    assert answer.body["message"] == 'configmaps "m" already exists'


@pytest.mark.parametrize(("prefix", "kept"), [("m-", "m-"), ("x" * 80, "x" * 58)])
async def test_a_generated_name_is_the_prefix_and_five_letters(api: Api, prefix: str, kept: str) -> None:
    made = await api.make(api.maps, {"metadata": {"generateName": prefix}})
    assert made.meta["name"].startswith(kept)
    assert len(made.meta["name"]) == len(kept) + 5


async def test_versions_of_several_kinds_are_of_one_counter(api: Api) -> None:
    first = await api.make(api.maps, named("m"))
    second = await api.make(NODES, named(api.name))
    third = await api.make(api.maps, named("n"))
    assert int(first.version) < int(second.version) < int(third.version)


async def test_a_stale_version_is_refused_in_a_replacement(api: Api) -> None:
    made = await api.make(api.maps, named("m"))
    await api.patch(f"{api.maps}/m", {"data": {"a": "1"}})
    answer = await api("PUT", f"{api.maps}/m", {**named("m", resourceVersion=made.version), "data": {"a": "2"}})
    assert answer.said == (409, "Conflict")
    assert answer.body["message"] == f'Operation cannot be fulfilled on configmaps "m": {STALE}'


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_MERGE_PATCH])
@pytest.mark.parametrize("data", [{"a": "2"}, {"a": "1"}])
async def test_a_stale_version_is_refused_in_a_patch_even_of_nothing(api: Api, kind: str, data: Object) -> None:
    made = await api.make(api.maps, named("m"))
    await api.patch(f"{api.maps}/m", {"data": {"a": "1"}})
    patch = {"metadata": {"resourceVersion": made.version}, "data": data}
    assert (await api.patch(f"{api.maps}/m", patch, kind)).said == (409, "Conflict")


async def test_the_present_version_is_taken(api: Api) -> None:
    made = await api.make(api.maps, named("m"))
    patch = {"metadata": {"resourceVersion": made.version}, "data": {"a": "1"}}
    answer = await api.patch(f"{api.maps}/m", patch)
    assert (answer.status, answer.body["data"]) == (200, {"a": "1"})
    assert int(answer.version) > int(made.version)


async def test_another_uid_in_a_replacement_is_409(api: Api) -> None:
    await api.make(api.maps, named("m"))
    answer = await api("PUT", f"{api.maps}/m", {**named("m", uid="another"), "data": {"a": "1"}})
    assert answer.said == (409, "Conflict")
    assert "Precondition failed: UID in precondition: another, UID in object meta: " in answer.body["message"]


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_MERGE_PATCH])
async def test_another_uid_in_a_patch_is_422(api: Api, kind: str) -> None:
    await api.make(api.maps, named("m"))
    answer = await api.patch(f"{api.maps}/m", {"metadata": {"uid": "another"}, "data": {"a": "1"}}, kind)
    assert answer.said == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.uid"


async def test_a_replacement_without_a_version_is_taken_where_the_kind_allows_it(api: Api) -> None:
    await api.make(api.maps, named("m"))
    answer = await api("PUT", f"{api.maps}/m", {**named("m"), "data": {"a": "1"}})
    assert (answer.status, answer.body["data"]) == (200, {"a": "1"})


@pytest.mark.parametrize("meta", [{"name": "other"}, {}])
async def test_a_replacement_with_another_name_or_none_is_400(api: Api, meta: Object) -> None:
    await api.make(api.maps, named("m"))
    assert (await api("PUT", f"{api.maps}/m", {"metadata": meta})).said == (400, "BadRequest")


@pytest.mark.parametrize("meta", [{"name": "other"}, {"namespace": "other"}])
async def test_a_patch_cannot_move_an_object(api: Api, meta: Object) -> None:
    await api.make(api.maps, named("m"))
    assert (await api.patch(f"{api.maps}/m", {"metadata": meta})).said == (400, "BadRequest")


async def test_a_patch_cannot_mark_an_object_deleted(api: Api) -> None:
    await api.make(api.maps, named("m"))
    answer = await api.patch(f"{api.maps}/m", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}})
    assert answer.said == (422, "Invalid")


async def test_the_time_of_creation_cannot_be_changed(api: Api) -> None:
    made = await api.make(api.maps, named("m"))
    patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}, "data": {"a": "1"}}
    answer = await api.patch(f"{api.maps}/m", patch)
    assert (answer.status, answer.meta["creationTimestamp"]) == (200, made.meta["creationTimestamp"])


@pytest.mark.parametrize("patch", [{"data": {"a": "1"}}, {"metadata": {"labels": {"none": None}}}, {}])
async def test_a_write_that_changes_nothing_keeps_the_version_and_is_no_event(api: Api, patch: Object) -> None:
    made = await api.make(api.maps, {**named("m"), "data": {"a": "1"}})
    assert (await api.patch(f"{api.maps}/m", patch)).version == made.version
    last = await api.make(api.maps, named("after"))
    async with api.watch(api.maps, resourceVersion=made.version) as watch:
        kind, obj = await watch.next()
    assert (kind, obj["metadata"]["resourceVersion"]) == ("ADDED", last.version)


async def test_null_takes_a_key_away_and_what_is_not_named_stays(api: Api) -> None:
    await api.make(api.maps, {**named("m", labels={"a": "1", "b": "2"}), "data": {"x": "1", "y": "2"}})
    answer = await api.patch(f"{api.maps}/m", {"metadata": {"labels": {"a": None}}, "data": {"x": None, "z": "3"}})
    assert answer.meta["labels"] == {"b": "2"}
    assert answer.body["data"] == {"y": "2", "z": "3"}


async def test_null_takes_a_whole_map_away(api: Api) -> None:
    await api.make(api.maps, {**named("m", labels={"a": "1"}), "data": {"x": "1"}})
    answer = await api.patch(f"{api.maps}/m", {"metadata": {"labels": None}, "data": None})
    assert "labels" not in answer.meta
    assert "data" not in answer.body


async def test_the_last_key_that_goes_takes_its_map_along(api: Api) -> None:
    await api.make(api.maps, {**named("m", labels={"a": "1"}), "data": {"x": "1"}})
    answer = await api.patch(f"{api.maps}/m", {"metadata": {"labels": {"a": None}}, "data": {"x": None}})
    assert "labels" not in answer.meta
    assert "data" not in answer.body


def condition(kind: str, status: str) -> Object:
    return {"type": kind, "status": status}


async def conditions(api: Api, patch: list[Object], kind: str) -> list[tuple[str, str]]:
    """Conditions of a Node with A and B after a patch of them."""
    await api.make(NODES, named(api.name))
    both = {"status": {"conditions": [condition("A", "True"), condition("B", "True")]}}
    await api.patch(f"{NODES}/{api.name}/status", both, STRATEGIC_MERGE_PATCH)
    answer = await api.patch(f"{NODES}/{api.name}/status", {"status": {"conditions": patch}}, kind)
    assert answer.status == 200, answer.body
    return [(one["type"], one["status"]) for one in answer.body["status"]["conditions"]]


async def test_a_merge_patch_replaces_a_list(api: Api) -> None:
    assert await conditions(api, [condition("A", "False")], MERGE_PATCH) == [("A", "False")]


async def test_a_strategic_patch_merges_a_list_by_its_key(api: Api) -> None:
    found = await conditions(api, [condition("B", "False"), condition("C", "True")], STRATEGIC_MERGE_PATCH)
    assert found == [("A", "True"), ("B", "False"), ("C", "True")]


async def test_a_strategic_patch_takes_an_element_out(api: Api) -> None:
    found = await conditions(api, [{"$patch": "delete", "type": "A"}], STRATEGIC_MERGE_PATCH)
    assert found == [("B", "True")]


async def test_a_strategic_patch_replaces_taints(api: Api) -> None:
    await api.make(NODES, named(api.name))
    for key in ("a.b/c", "d.e/f"):
        taints = [{"key": key, "effect": "NoSchedule"}]
        answer = await api.patch(f"{NODES}/{api.name}", {"spec": {"taints": taints}}, STRATEGIC_MERGE_PATCH)
    assert answer.body["spec"]["taints"] == [{"key": "d.e/f", "effect": "NoSchedule"}]


async def test_a_strategic_patch_adds_to_finalizers_and_a_merge_patch_replaces_them(api: Api) -> None:
    await api.make(api.maps, named("m", finalizers=["a.b/c"]))
    patch = {"metadata": {"finalizers": ["d.e/f"]}}
    added = await api.patch(f"{api.maps}/m", patch, STRATEGIC_MERGE_PATCH)
    assert sorted(added.meta["finalizers"]) == ["a.b/c", "d.e/f"]
    assert (await api.patch(f"{api.maps}/m", patch)).meta["finalizers"] == ["d.e/f"]
    await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/data/a", "value": "2"}],
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "nonsense", "path": "/data/a"}],
        [{"op": "add", "path": "/none/a", "value": "1"}],
    ],
)
async def test_a_json_patch_that_cannot_be_done_is_422_and_does_nothing(api: Api, operations: list[Any]) -> None:
    made = await api.make(api.maps, {**named("m"), "data": {"a": "1"}})
    first = {"op": "add", "path": "/data/b", "value": "2"}
    assert (await api.patch(f"{api.maps}/m", [first, *operations], JSON_PATCH)).said == (422, "Invalid")
    assert (await api.get(f"{api.maps}/m")).version == made.version


async def test_a_json_patch_is_done_in_order(api: Api) -> None:
    await api.make(api.maps, {**named("m", labels={"a.b/c": "1"}), "data": {"a": "1"}})
    operations = [
        {"op": "test", "path": "/metadata/labels/a.b~1c", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "copy", "from": "/data/a", "path": "/data/b"},
        {"op": "move", "from": "/data/a", "path": "/data/c"},
    ]
    answer = await api.patch(f"{api.maps}/m", operations, JSON_PATCH)
    assert answer.body["data"] == {"b": "2", "c": "2"}


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_dry_run_answers_and_does_nothing(api: Api, method: str) -> None:
    made = await api.make(api.maps, named("m"))
    body = {"POST": named("new"), "PATCH": {"data": {"a": "1"}}, "DELETE": None}[method]
    path = api.maps if method == "POST" else f"{api.maps}/m"
    answer = await api(method, path, body, MERGE_PATCH if method == "PATCH" else "application/json", dryRun="All")
    assert answer.status == (201 if method == "POST" else 200)
    assert (await api.get(f"{api.maps}/m")).version == made.version
    assert (await api.get(f"{api.maps}/new")).status == 404


async def test_a_dry_run_of_a_creation_has_no_version_and_is_checked_all_the_same(api: Api) -> None:
    answer = await api("POST", api.maps, named("m"), dryRun="All")
    assert "resourceVersion" not in answer.meta
    await api.make(api.maps, named("m"))
    assert (await api("POST", api.maps, named("m"), dryRun="All")).said == (409, "AlreadyExists")


async def test_the_handler_of_a_runtime_class_cannot_be_changed(api: Api) -> None:
    await api.make(RUNTIME_CLASSES, {**named(api.name), "handler": "kata"})
    answer = await api.patch(f"{RUNTIME_CLASSES}/{api.name}", {"handler": "other"})
    assert answer.said == (422, "Invalid")
    text = f'RuntimeClass.node.k8s.io "{api.name}" is invalid: handler: Invalid value: "other": field is immutable'
    assert answer.body["message"] == text


@pytest.mark.parametrize("handler", [None, "", "Upper", "a_b", "a.b", "a" * 64])
async def test_the_handler_of_a_runtime_class_is_a_dns_label(api: Api, handler: str | None) -> None:
    answer = await api("POST", RUNTIME_CLASSES, {**named(api.name), "handler": handler})
    assert answer.said == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "handler"


async def test_the_data_of_a_controller_revision_cannot_be_changed(api: Api) -> None:
    path = api.of("controllerrevisions", "apps")
    await api.make(path, {**named("r"), "data": {"a": 1}, "revision": 1})
    assert (await api.patch(f"{path}/r", {"data": {"a": 2}})).said == (422, "Invalid")
    assert (await api.patch(f"{path}/r", {"metadata": {"labels": {"a": "1"}}})).status == 200


async def test_a_taint_has_a_known_effect(api: Api) -> None:
    await api.make(NODES, named(api.name))
    patch = {"spec": {"taints": [{"key": "k", "effect": "Odd"}]}}
    assert (await api.patch(f"{NODES}/{api.name}", patch)).said == (422, "Invalid")
