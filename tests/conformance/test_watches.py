"""Watches: where they begin, what comes into a selector and leaves it, bookmarks, both roads of 410, their end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import RUNTIMES, Api, Object, named, pod, runtime


def told(events: list[tuple[str, Object]]) -> list[tuple[str, str]]:
    return [(kind, obj["metadata"]["name"]) for kind, obj in events]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_without_a_version_what_is_there_comes_first(api: Api, query: dict[str, str]) -> None:
    await api.make(api.maps, named("a", labels={"mine": "yes"}))
    await api.make(api.maps, named("b", labels={"mine": "yes"}))
    async with api.watch(api.maps, labelSelector="mine", **query) as watch:
        assert told(await watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.delete(f"{api.maps}/a")
        assert told([await watch.next()]) == [("DELETED", "a")]


async def test_from_a_version_everything_after_it_comes_in_order(api: Api) -> None:
    made = await api.make(api.maps, named("a"))
    await api.patch(f"{api.maps}/a", {"data": {"x": "1"}})
    await api.make(api.maps, named("b"))
    await api.delete(f"{api.maps}/a")
    async with api.watch(api.maps, resourceVersion=made.version) as watch:
        events = await watch.take(3)
    assert told(events) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))


async def test_objects_of_events_say_what_they_are(api: Api) -> None:
    made = await api.make(api.maps, named("a"))
    await api.patch(f"{api.maps}/a", {"data": {"x": "1"}})
    async with api.watch(api.maps, resourceVersion=made.version) as watch:
        _, obj = await watch.next()
    assert (obj["kind"], obj["apiVersion"]) == ("ConfigMap", "v1")


async def test_what_was_deleted_comes_as_it_was_under_the_version_of_its_end(api: Api) -> None:
    made = await api.make(api.maps, {**named("a"), "data": {"x": "1"}})
    await api.delete(f"{api.maps}/a")
    async with api.watch(api.maps, resourceVersion=made.version) as watch:
        kind, obj = await watch.next()
    assert (kind, obj["data"], obj["metadata"]["uid"]) == ("DELETED", {"x": "1"}, made.meta["uid"])
    assert int(obj["metadata"]["resourceVersion"]) > int(made.version)


async def test_what_comes_into_a_selector_is_added_and_what_leaves_it_deleted_as_it_was(api: Api) -> None:
    made = await api.make(api.maps, named("a"))
    for labels in ({"in": "yes"}, {"more": "1"}, {"in": None}):
        last = await api.patch(f"{api.maps}/a", {"metadata": {"labels": labels}})
    async with api.watch(api.maps, resourceVersion=made.version, labelSelector="in=yes") as watch:
        events = await watch.take(3)
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    gone = events[-1][1]["metadata"]
    assert gone["labels"] == {"in": "yes", "more": "1"}
    assert gone["resourceVersion"] == last.version


async def test_a_field_selector_lets_only_its_own_through(api: Api) -> None:
    made = await api.make(api.maps, named("a"))
    await api.make(api.maps, named("b"))
    await api.make(api.maps, named("c"))
    async with api.watch(api.maps, resourceVersion=made.version, fieldSelector="metadata.name=c") as watch:
        assert told([await watch.next()]) == [("ADDED", "c")]


async def test_a_pod_comes_to_its_node(api: Api) -> None:
    before = (await api.get(api.pods)).version
    await api.make(api.pods, pod("other"))
    await api.make(api.pods, pod("mine", nodeName=api.name))
    async with api.watch("/api/v1/pods", resourceVersion=before, fieldSelector=f"spec.nodeName={api.name}") as watch:
        assert told([await watch.next()]) == [("ADDED", "mine")]
    await api.delete(f"{api.pods}/mine", gracePeriodSeconds=0)


async def test_one_namespace_hears_nothing_of_another(api: Api) -> None:
    before = (await api.get(api.maps)).version
    other = await api("POST", "/api/v1/namespaces/default/configmaps", named(api.name))
    assert other.status == 201
    await api.delete(f"/api/v1/namespaces/default/configmaps/{api.name}")
    await api.make(api.maps, named("a"))
    async with api.watch(api.maps, resourceVersion=before) as watch:
        assert told([await watch.next()]) == [("ADDED", "a")]


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    before = (await api.get(api.maps)).version
    async with api.watch(api.maps, resourceVersion=before, timeoutSeconds="1") as watch:
        assert await watch.rest() == []


async def test_a_bookmark_comes_before_the_end_with_a_version_and_nothing_else(api: Api) -> None:
    before = await api.make(api.maps, named("a"))
    query = {"resourceVersion": before.version, "timeoutSeconds": "4", "fieldSelector": "metadata.name=none"}
    async with api.watch(api.maps, allowWatchBookmarks="true", **query) as watch:
        events = await watch.rest()
    assert {kind for kind, _ in events} == {"BOOKMARK"}
    obj = events[0][1]
    assert (obj["kind"], obj["apiVersion"], list(obj["metadata"])) == ("ConfigMap", "v1", ["resourceVersion"])
    assert int(obj["metadata"]["resourceVersion"]) >= int(before.version)


async def test_a_watch_goes_on_from_a_bookmark(api: Api) -> None:
    before = await api.make(api.maps, named("a"))
    query = {"resourceVersion": before.version, "timeoutSeconds": "3", "fieldSelector": "metadata.name=none"}
    async with api.watch(api.maps, allowWatchBookmarks="true", **query) as watch:
        _, mark = (await watch.rest())[0]
    await api.make(api.maps, named("b"))
    async with api.watch(api.maps, resourceVersion=mark["metadata"]["resourceVersion"]) as watch:
        assert told([await watch.next()]) == [("ADDED", "b")]


async def test_no_bookmark_comes_to_who_did_not_ask(api: Api) -> None:
    before = (await api.get(api.maps)).version
    async with api.watch(api.maps, resourceVersion=before, timeoutSeconds="3") as watch:
        assert await watch.rest() == []


async def test_a_watch_from_a_version_that_is_forgotten_is_410_in_the_stream(api: Api) -> None:
    await api.make(RUNTIMES, runtime(api.name))
    await api.forget()
    async with api.watch(RUNTIMES, resourceVersion="1") as watch:
        assert watch.status == 200
        ((kind, status),) = await watch.rest()
    assert (kind, status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_watch_from_the_future_is_silent_without_a_bookmark(api: Api) -> None:
    future = str(int((await api.get(api.maps)).version) + 100_000)
    query: dict[str, Any] = {"resourceVersion": future, "timeoutSeconds": "4", "allowWatchBookmarks": "true"}
    async with api.watch(api.maps, **query) as watch:
        assert watch.status == 200
        await api.make(api.maps, named("a"))
        assert await watch.rest() == []


async def test_a_version_that_is_no_number_is_refused(api: Api) -> None:
    async with api.watch(api.maps, resourceVersion="x") as watch:
        assert watch.status == 500


async def test_several_kinds_are_watched_side_by_side(api: Api) -> None:
    before = (await api.get(api.maps)).version
    async with (
        api.watch(api.maps, resourceVersion=before) as maps,
        api.watch(RUNTIMES, resourceVersion=before, fieldSelector=f"metadata.name={api.name}") as runtimes,
    ):
        await api.make(RUNTIMES, runtime(api.name))
        await api.make(api.maps, named("a"))
        assert told([await maps.next()]) == [("ADDED", "a")]
        assert told([await runtimes.next()]) == [("ADDED", api.name)]
