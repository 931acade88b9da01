"""The embedded API server answers as the real one does: versions, preconditions, deletion, watches."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconciler.api.clock import SystemClock
from reconciler.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, TransportError
from reconciler.sim.failures import ApiFailure
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer, Knobs, Trouble

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"
RUNTIMES = "/apis/runtime-reconciler.io/v1alpha1/noderuntimes"
MAPS = "/api/v1/namespaces/ns/configmaps"


class Api:
    """Short calls with JSON in and out."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.transport = MemoryTransport(server, user="test")

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        response = await self.transport.request(method, path, query=query, body=data, content_type=kind)
        return response.status, json.loads(response.body)

    async def events(self, path: str, **query: str) -> AsyncIterator[tuple[str, Any]]:
        async with self.transport.stream(path, query=query, timeout=5) as stream:
            async for chunk in stream:
                for line in chunk.splitlines():
                    event = json.loads(line)
                    yield event["type"], event["object"]


@pytest.fixture
def api() -> Api:
    return Api(ApiServer(clock=SystemClock(), rng=random.Random(1)))


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [], **spec}}


async def test_a_stale_resource_version_is_refused_with_409(api: Api) -> None:
    _, made = await api("POST", NODES, node("a"))
    version = made["metadata"]["resourceVersion"]
    status, _ = await api("PATCH", f"{NODES}/a", {"metadata": {"labels": {"x": "1"}}}, MERGE_PATCH)
    assert status == 200
    patch = {"metadata": {"resourceVersion": version, "labels": {"x": "2"}}}
    status, answer = await api("PATCH", f"{NODES}/a", patch, MERGE_PATCH)
    assert (status, answer["reason"]) == (409, "Conflict")


async def test_creating_what_exists_is_409_already_exists(api: Api) -> None:
    await api("POST", NODES, node("a"))
    status, answer = await api("POST", NODES, node("a"))
    assert (status, answer["reason"]) == (409, "AlreadyExists")


async def test_a_failed_test_of_a_json_patch_is_422(api: Api) -> None:
    await api("POST", NODES, node("a", x="1"))
    operations = [{"op": "test", "path": "/metadata/labels/x", "value": "2"}]
    status, _ = await api("PATCH", f"{NODES}/a", operations, JSON_PATCH)
    assert status == 422


async def test_a_write_that_changes_nothing_keeps_the_version(api: Api) -> None:
    _, made = await api("POST", NODES, node("a", x="1"))
    _, same = await api("PATCH", f"{NODES}/a", {"metadata": {"labels": {"x": "1"}}}, MERGE_PATCH)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_the_status_of_a_custom_resource_changes_only_by_its_subresource(api: Api) -> None:
    await api("POST", RUNTIMES, {"metadata": {"name": "kata"}, "spec": {"paused": True}, "status": {"inWork": ["a"]}})
    _, there = await api("GET", f"{RUNTIMES}/kata")
    assert "status" not in there
    _, there = await api("PATCH", f"{RUNTIMES}/kata/status", {"status": {"inWork": ["a"]}, "spec": None}, MERGE_PATCH)
    assert there["status"] == {"inWork": ["a"]}
    assert there["spec"] == {"paused": True}
    assert there["metadata"]["generation"] == 1
    _, there = await api("PATCH", f"{RUNTIMES}/kata", {"spec": {"paused": False}, "status": None}, MERGE_PATCH)
    assert there["status"] == {"inWork": ["a"]}
    assert there["metadata"]["generation"] == 2


async def test_a_node_runtime_that_the_schema_refuses_is_422(api: Api) -> None:
    status, answer = await api("POST", RUNTIMES, {"metadata": {"name": "kata"}, "spec": {"paused": "yes"}})
    assert status == 422
    assert "spec.paused" in answer["message"]


async def test_conditions_are_merged_by_type_in_a_strategic_patch(api: Api) -> None:
    await api("POST", NODES, node("a"))
    for kind in ("Ready", "ContainerdServing"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        await api("PATCH", f"{NODES}/a/status", patch, STRATEGIC_MERGE_PATCH)
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    _, there = await api("PATCH", f"{NODES}/a/status", patch, STRATEGIC_MERGE_PATCH)
    assert [(c["type"], c["status"]) for c in there["status"]["conditions"]] == [
        ("Ready", "False"),
        ("ContainerdServing", "True"),
    ]


async def test_a_list_in_pages_is_of_one_version(api: Api) -> None:
    for name in "abc":
        await api("POST", NODES, node(name))
    _, first = await api("GET", NODES, limit="2")
    await api("DELETE", f"{NODES}/c")
    await api("POST", NODES, node("d"))
    _, second = await api("GET", NODES, limit="2", **{"continue": first["metadata"]["continue"]})
    assert [n["metadata"]["name"] for n in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_continue_token_of_a_compacted_version_is_410(api: Api) -> None:
    for name in "abc":
        await api("POST", NODES, node(name))
    _, first = await api("GET", NODES, limit="2")
    await api("POST", NODES, node("d"))
    api.server.store.compact()
    status, answer = await api("GET", NODES, limit="2", **{"continue": first["metadata"]["continue"]})
    assert (status, answer["reason"]) == (410, "Expired")


async def test_selectors_choose_by_labels_and_fields(api: Api) -> None:
    await api("POST", NODES, node("a", zone="x"))
    await api("POST", NODES, node("b", zone="y"))
    _, by_label = await api("GET", NODES, labelSelector="zone in (y,z)")
    _, by_field = await api("GET", NODES, fieldSelector="metadata.name=a")
    assert [n["metadata"]["name"] for n in by_label["items"]] == ["b"]
    assert [n["metadata"]["name"] for n in by_field["items"]] == ["a"]


async def test_a_pod_with_a_node_is_marked_first_and_removed_by_grace_zero(api: Api) -> None:
    await api("POST", PODS, pod("p", nodeName="n", terminationGracePeriodSeconds=7))
    status, marked = await api("DELETE", f"{PODS}/p")
    assert status == 200
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
    assert "deletionTimestamp" in marked["metadata"]
    await api("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    status, _ = await api("GET", f"{PODS}/p")
    assert status == 404


async def test_a_pod_that_has_ended_goes_at_once(api: Api) -> None:
    await api("POST", PODS, pod("p", nodeName="n"))
    await api("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, MERGE_PATCH)
    await api("DELETE", f"{PODS}/p")
    status, _ = await api("GET", f"{PODS}/p")
    assert status == 404


async def test_a_uid_precondition_that_does_not_hold_is_409(api: Api) -> None:
    await api("POST", PODS, pod("p"))
    status, _ = await api("DELETE", f"{PODS}/p", {"preconditions": {"uid": "other"}})
    assert status == 409


async def test_a_finalizer_holds_an_object_until_it_is_taken_off(api: Api) -> None:
    await api("POST", RUNTIMES, {"metadata": {"name": "kata", "finalizers": ["x/y"]}, "spec": {}})
    await api("DELETE", f"{RUNTIMES}/kata")
    status, there = await api("GET", f"{RUNTIMES}/kata")
    assert status == 200
    assert there["metadata"]["generation"] == 2
    await api("PATCH", f"{RUNTIMES}/kata", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    status, _ = await api("GET", f"{RUNTIMES}/kata")
    assert status == 404


def owned(name: str, owner: dict[str, Any]) -> dict[str, Any]:
    ref = {"apiVersion": "v1", "kind": "X", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return {"metadata": {"name": name, "ownerReferences": [ref]}}


async def test_dependents_follow_their_owner_in_a_background_deletion(api: Api) -> None:
    _, owner = await api("POST", MAPS, {"metadata": {"name": "owner"}})
    await api("POST", MAPS, owned("child", owner))
    await api("DELETE", f"{MAPS}/owner")
    _, left = await api("GET", MAPS)
    assert left["items"] == []


async def test_a_foreground_deletion_removes_dependents_although_the_owner_has_another_finalizer(api: Api) -> None:
    _, owner = await api("POST", RUNTIMES, {"metadata": {"name": "kata", "finalizers": ["x/y"]}, "spec": {}})
    await api("POST", MAPS, owned("child", owner))
    await api("DELETE", f"{RUNTIMES}/kata", {"propagationPolicy": "Foreground"})
    _, left = await api("GET", MAPS)
    _, there = await api("GET", f"{RUNTIMES}/kata")
    assert left["items"] == []
    assert there["metadata"]["finalizers"] == ["x/y"]


async def test_an_orphan_deletion_leaves_dependents_without_their_owner(api: Api) -> None:
    _, owner = await api("POST", MAPS, {"metadata": {"name": "owner"}})
    await api("POST", MAPS, owned("child", owner))
    await api("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
    _, left = await api("GET", MAPS)
    assert [m["metadata"]["name"] for m in left["items"]] == ["child"]
    assert "ownerReferences" not in left["items"][0]["metadata"]


async def test_generated_names_begin_with_the_prefix(api: Api) -> None:
    _, made = await api("POST", MAPS, {"metadata": {"generateName": "m-"}})
    assert made["metadata"]["name"].startswith("m-")
    assert len(made["metadata"]["name"]) == 7


async def test_a_watch_tells_what_comes_into_and_what_leaves_its_selector(api: Api) -> None:
    _, listed = await api("GET", NODES)
    watching = api.events(NODES, resourceVersion=listed["metadata"]["resourceVersion"], labelSelector="in=yes")
    await api("POST", NODES, node("a"))
    await api("PATCH", f"{NODES}/a", {"metadata": {"labels": {"in": "yes"}}}, MERGE_PATCH)
    await api("PATCH", f"{NODES}/a", {"metadata": {"labels": {"more": "1"}}}, MERGE_PATCH)
    await api("PATCH", f"{NODES}/a", {"metadata": {"labels": {"in": None}}}, MERGE_PATCH)
    seen = [(await anext(watching))[0] for _ in range(3)]
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


async def test_bookmarks_carry_the_newest_version(api: Api) -> None:
    api.server.knobs.bookmark_seconds = 0.0
    await api("POST", NODES, node("a"))
    watching = api.events(PODS, resourceVersion="1", allowWatchBookmarks="true")
    kind, obj = await anext(watching)
    assert (kind, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", "2")


@pytest.mark.parametrize("in_stream", [True, False])
async def test_a_watch_from_a_compacted_version_is_410_by_either_road(api: Api, in_stream: bool) -> None:
    api.server.knobs.expired_in_stream = in_stream
    await api("POST", NODES, node("a"))
    api.server.store.compact()
    async with api.transport.stream(NODES, query={"resourceVersion": "1"}, timeout=5) as stream:
        body = json.loads(b"".join([chunk async for chunk in stream]))
        assert stream.status == (200 if in_stream else 410)
    assert (body["object"]["code"] if in_stream else body["code"]) == 410


async def test_a_watch_from_the_future_ends_with_504_in_the_stream(api: Api) -> None:
    kind, obj = await anext(api.events(NODES, resourceVersion="99"))
    assert (kind, obj["code"]) == ("ERROR", 504)


async def test_a_broken_watch_ends(api: Api) -> None:
    watching = asyncio.ensure_future(anext(api.events(NODES, resourceVersion="1"), None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    api.server.break_watches()
    assert await watching is None


async def test_troubles_refuse_and_drop(api: Api) -> None:
    api.server.knobs = Knobs(trouble=lambda _: Trouble(failure=ApiFailure(503, "ServiceUnavailable", "no")))
    assert (await api("GET", NODES))[0] == 503
    api.server.knobs = Knobs(trouble=lambda _: Trouble(drop_after=True))
    with pytest.raises(TransportError):
        await api("POST", NODES, node("a"))
    api.server.knobs = Knobs()
    assert (await api("GET", f"{NODES}/a"))[0] == 200
