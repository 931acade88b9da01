"""What the API server says when it refuses: the status, the reason, the words, and the `Status` around them."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.conformance.api import NODES, RUNTIME_CLASSES, RUNTIMES, Api, Object, named


async def test_an_absent_object_is_404_and_says_which(api: Api) -> None:
    answer = await api.get(f"{api.maps}/m")
    assert answer.status == 404
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "m" not found',
        "reason": "NotFound",
        "details": {"name": "m", "kind": "configmaps"},
        "code": 404,
    }


async def test_a_resource_with_a_group_is_named_with_it(api: Api) -> None:
    answer = await api.get(f"{RUNTIMES}/{api.name}")
    assert answer.body["message"] == f'noderuntimes.runtime-reconciler.io "{api.name}" not found'
    assert answer.body["details"] == {"name": api.name, "group": "runtime-reconciler.io", "kind": "noderuntimes"}


@pytest.mark.parametrize("method", ["PATCH", "PUT", "DELETE"])
async def test_a_write_to_an_absent_object_is_404(api: Api, method: str) -> None:
    kind = MERGE_PATCH if method == "PATCH" else "application/json"
    answer = await api(method, f"{api.maps}/m", None if method == "DELETE" else named("m"), kind)
    assert answer.said == (404, "NotFound")
    assert answer.body["message"] == 'configmaps "m" not found'


@pytest.mark.parametrize("path", ["/api/v1/nonsense", "/api/v1/configmaps/m"])
async def test_an_unknown_resource_is_404_without_details(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert answer.said == (404, "NotFound")
    assert answer.body["message"] == "the server could not find the requested resource"
    assert answer.body["details"] == {}


async def test_an_unknown_subresource_is_404(api: Api) -> None:
    await api.make(api.maps, named("m"))
    assert (await api.get(f"{api.maps}/m/status")).said == (404, "NotFound")


@pytest.mark.parametrize("path", ["/apis/none.invalid/v1/things", "/nonsense"])
async def test_an_unknown_group_is_404_in_plain_text(api: Api, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize(("method", "tail"), [("POST", "/m"), ("PUT", "")])
async def test_a_method_that_is_not_offered_is_405(api: Api, method: str, tail: str) -> None:
    answer = await api(method, api.maps + tail, named("m"))
    assert answer.said == (405, "MethodNotAllowed")
    assert answer.body["message"] == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
async def test_a_patch_of_an_unknown_type_is_415(api: Api, kind: str) -> None:
    await api.make(api.maps, named("m"))
    assert (await api.patch(f"{api.maps}/m", {}, kind)).said == (415, "UnsupportedMediaType")


async def test_a_strategic_merge_patch_of_a_custom_resource_is_415(api: Api) -> None:
    answer = await api.patch(f"{RUNTIMES}/{api.name}", {}, STRATEGIC_MERGE_PATCH)
    assert answer.said == (415, "UnsupportedMediaType")


async def test_a_body_of_an_unknown_type_is_415(api: Api) -> None:
    assert (await api("POST", api.maps, named("m"), "text/plain")).said == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("raw", [b'{"metadata":', b"[1]", b'"x"'])
async def test_a_body_that_is_no_object_is_400(api: Api, raw: bytes) -> None:
    assert (await api("POST", api.maps, raw=raw)).said == (400, "BadRequest")


@pytest.mark.parametrize("raw", [b'{"metadata":', b"[1]"])
async def test_a_patch_that_is_no_object_is_400(api: Api, raw: bytes) -> None:
    await api.make(api.maps, named("m"))
    assert (await api("PATCH", f"{api.maps}/m", raw=raw, kind=MERGE_PATCH)).said == (400, "BadRequest")


async def test_a_json_patch_that_is_no_list_is_400(api: Api) -> None:
    await api.make(api.maps, named("m"))
    assert (await api.patch(f"{api.maps}/m", {"a": 1}, JSON_PATCH)).said == (400, "BadRequest")


async def test_an_object_of_another_kind_is_400(api: Api) -> None:
    answer = await api("POST", api.maps, {**named("m"), "apiVersion": "v1", "kind": "Secret"})
    assert answer.said == (400, "BadRequest")


async def test_a_custom_resource_must_say_what_it_is(api: Api) -> None:
    assert (await api("POST", RUNTIMES, {**named(api.name), "spec": {}})).said == (400, "BadRequest")


@pytest.mark.parametrize(
    ("meta", "field"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": "a" * 254}, "metadata.name"),
        ({"name": "a_b"}, "metadata.name"),
        ({"labels": {"a": "b" * 64}}, "metadata.labels"),
        ({"labels": {"a": "b c"}}, "metadata.labels"),
        ({"labels": {"a b": "c"}}, "metadata.labels"),
        ({"labels": {f"{'a' * 64}": "c"}}, "metadata.labels"),
        ({"labels": {"a/b/c": "c"}}, "metadata.labels"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"annotations": {"a": "b" * 262144}}, "metadata.annotations"),
        ({"finalizers": ["nodomain"]}, "metadata.finalizers[0]"),
        ({"finalizers": ["a b/c"]}, "metadata.finalizers"),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n"}]}, "metadata.ownerReferences.uid"),
    ],
)
async def test_metadata_that_breaks_a_rule_is_422_and_names_the_field(api: Api, meta: Object, field: str) -> None:
    answer = await api("POST", api.maps, {"metadata": {"name": "m", **meta}})
    assert answer.said == (422, "Invalid")
    assert answer.body["message"].startswith(f'ConfigMap "{meta.get("name", "m")}" is invalid: {field}: ')
    assert answer.body["details"]["kind"] == "ConfigMap"
    assert answer.body["details"]["causes"][0]["field"] == field


async def test_metadata_at_its_limits_is_taken(api: Api) -> None:
    meta = {
        "labels": {f"{'d' * 61}.{'e' * 61}/{'a' * 63}": "b" * 63, "empty": ""},
        "annotations": {"a": "b" * 262143},
        "finalizers": ["a.b/c"],
    }
    answer = await api("POST", api.maps, named("a" * 253, **meta))
    assert answer.status == 201
    await api.patch(f"{api.maps}/{'a' * 253}", {"metadata": {"finalizers": None}})


async def test_a_patch_is_held_to_the_rules_of_metadata(api: Api) -> None:
    await api.make(api.maps, named("m"))
    assert (await api.patch(f"{api.maps}/m", {"metadata": {"labels": {"a": "b" * 64}}})).said == (422, "Invalid")


@pytest.mark.parametrize(
    "body",
    [{"metadata": {"name": "m", "labels": {"a": 1}}}, {**named("m"), "data": {"a": 1}}, {"metadata": {"name": 1}}],
)
async def test_a_value_of_the_wrong_type_is_400(api: Api, body: Any) -> None:
    assert (await api("POST", api.maps, body)).said == (400, "BadRequest")


async def test_no_name_at_all_is_422(api: Api) -> None:
    answer = await api("POST", api.maps, {"metadata": {}})
    assert answer.said == (422, "Invalid")
    text = 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    assert answer.body["message"] == text


async def test_another_namespace_in_the_body_is_400(api: Api) -> None:
    assert (await api("POST", api.maps, named("m", namespace="default"))).said == (400, "BadRequest")


async def test_a_namespace_that_is_not_there_is_404(api: Api) -> None:
    answer = await api("POST", "/api/v1/namespaces/conformance-none/configmaps", named("m"))
    assert answer.said == (404, "NotFound")
    assert answer.body["message"] == 'namespaces "conformance-none" not found'


async def test_a_version_in_what_is_created_is_500(api: Api) -> None:
    answer = await api("POST", api.maps, named("m", resourceVersion="1"))
    assert answer.status == 500
    assert answer.body["message"] == "resourceVersion should not be set on objects to be created"


async def test_an_unknown_dry_run_is_422(api: Api) -> None:
    assert (await api("POST", api.maps, named("m"), dryRun="Some")).said == (422, "Invalid")


@pytest.mark.parametrize("selector", ["a b c", "a in b", "a in (b", "=x", "a=b c"])
async def test_a_label_selector_that_cannot_be_read_is_400(api: Api, selector: str) -> None:
    assert (await api.get(api.maps, labelSelector=selector)).said == (400, "BadRequest")


@pytest.mark.parametrize("selector", ["nonsense", "data.a=1"])
async def test_a_field_that_cannot_be_selected_is_400(api: Api, selector: str) -> None:
    assert (await api.get(api.maps, fieldSelector=selector)).said == (400, "BadRequest")


ONLY_NAMES = '"status.phase" is not a known field selector: only "metadata.name", "metadata.namespace"'


@pytest.mark.parametrize(
    ("collection", "message"),
    [
        (NODES, "field label not supported: status.phase"),
        (RUNTIMES, "field label not supported: status.phase"),
        (RUNTIME_CLASSES, ONLY_NAMES),
        ("/apis/apps/v1/daemonsets", ONLY_NAMES),
        ("/apis/coordination.k8s.io/v1/leases", ONLY_NAMES),
    ],
)
async def test_only_declared_fields_can_be_selected(api: Api, collection: str, message: str) -> None:
    answer = await api.get(collection, fieldSelector="status.phase=Running")
    assert answer.said == (400, "BadRequest")
    assert answer.body["message"] == message


async def test_a_watch_is_refused_with_a_status_and_not_in_its_stream(api: Api) -> None:
    async with api.watch(api.maps, fieldSelector="data.a=1") as watch:
        assert watch.status == 400
