"""Lists: pages of one version, tokens that expire, versions that are asked for, selectors."""

from __future__ import annotations

import pytest

from tests.conformance.api import Answer, Api, Object, named, pod


async def maps(api: Api, *names: str, **labels: str) -> None:
    for name in names:
        await api.make(api.maps, named(name, labels={"mine": "yes", **labels}))


def event(api: Api, name: str) -> Object:
    return {
        **named(name),
        "regarding": {"kind": "Pod", "namespace": api.name, "name": "p"},
        "reason": "Reason",
        "action": "Action",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.org/controller",
        "reportingInstance": "one",
    }


def token(answer: Answer) -> str:
    return str(answer.meta["continue"])


async def test_an_empty_collection_is_an_empty_list_with_a_version(api: Api) -> None:
    answer = await api.get(api.of("leases", "coordination.k8s.io"))
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("LeaseList", "coordination.k8s.io/v1")
    assert answer.body["items"] == []
    assert int(answer.version) > 0


async def test_pages_are_of_one_version_and_sorted_by_name(api: Api) -> None:
    await maps(api, "c", "a", "b")
    first = await api.get(api.maps, limit="2", labelSelector="mine")
    await api.delete(f"{api.maps}/c")
    await maps(api, "d")
    second = await api.get(api.maps, limit="2", labelSelector="mine", **{"continue": token(first)})
    assert first.names + second.names == ["a", "b", "c"]
    assert second.version == first.version
    assert "continue" not in second.meta


async def test_remaining_items_are_counted_only_where_nothing_is_selected(api: Api) -> None:
    path = api.of("events", "events.k8s.io")
    for name in "abc":
        await api.make(path, event(api, name))
    first = await api.get(path, limit="1")
    assert first.meta["remainingItemCount"] == 2
    second = await api.get(path, limit="1", **{"continue": token(first)})
    assert second.meta["remainingItemCount"] == 1
    chosen = await api.get(path, limit="1", fieldSelector="metadata.name!=x")
    assert "continue" in chosen.meta
    assert "remainingItemCount" not in chosen.meta


async def test_a_token_of_a_compacted_version_is_410_with_a_token_to_go_on(api: Api) -> None:
    path = api.of("events", "events.k8s.io")
    for name in "abc":
        await api.make(path, event(api, name))
    first = await api.get(path, limit="1")
    await api.make(path, event(api, "d"))
    await api.forget()
    answer = await api.get(path, limit="1", **{"continue": token(first)})
    assert answer.said == (410, "Expired")
    assert answer.body["message"].startswith("The provided continue parameter is too old to display a consistent list")
    rest = await api.get(path, **{"continue": token(answer)})
    assert rest.names == ["b", "c", "d"]


@pytest.mark.parametrize("query", [{"continue": "nonsense"}, {"limit": "x"}, {"resourceVersion": "x"}])
async def test_parameters_that_cannot_be_read_are_400(api: Api, query: Object) -> None:
    assert (await api.get(api.maps, **query)).said == (400, "BadRequest")


async def test_a_token_and_a_version_together_are_400(api: Api) -> None:
    await maps(api, "a", "b")
    first = await api.get(api.maps, limit="1")
    answer = await api.get(api.maps, resourceVersion=first.version, **{"continue": token(first)})
    assert answer.said == (400, "BadRequest")


async def test_a_list_at_an_exact_version_is_as_it_was(api: Api) -> None:
    await maps(api, "a")
    before = await api.get(api.maps, labelSelector="mine")
    await maps(api, "b")
    query = {"resourceVersion": before.version, "resourceVersionMatch": "Exact"}
    then = await api.get(api.maps, labelSelector="mine", **query)
    assert (then.names, then.version) == (["a"], before.version)


async def test_a_match_without_a_version_is_422(api: Api) -> None:
    assert (await api.get(api.maps, resourceVersionMatch="Exact")).said == (422, "Invalid")


async def test_a_list_from_the_future_is_504_and_says_when_to_ask_again(api: Api) -> None:
    now = int((await api.get(api.maps)).version)
    answer = await api.get(api.maps, resourceVersion=str(now + 100_000))
    assert answer.said == (504, "Timeout")
    assert answer.body["message"].startswith(f"Timeout: Too large resource version: {now + 100_000}, current: ")
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert answer.body["details"] == {"causes": causes, "retryAfterSeconds": 1}


async def test_items_of_a_built_in_kind_do_not_say_what_they_are(api: Api) -> None:
    await maps(api, "a")
    item = (await api.get(api.maps, labelSelector="mine")).body["items"][0]
    assert "kind" not in item
    assert "apiVersion" not in item


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("zone=x", ["a"]),
        ("zone==x", ["a"]),
        ("zone!=x,mine", ["b", "c"]),
        ("zone in (y,z)", ["b"]),
        ("zone notin (y,z),mine", ["a", "c"]),
        ("zone", ["a", "b"]),
        ("!zone,mine", ["c"]),
        ("zone=x,mine=no", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, chosen: list[str]) -> None:
    await maps(api, "a", zone="x")
    await maps(api, "b", zone="y")
    await maps(api, "c")
    assert (await api.get(api.maps, labelSelector=selector)).names == chosen


async def test_fields_select_by_name_and_namespace(api: Api) -> None:
    await maps(api, "a", "b")
    assert (await api.get(api.maps, fieldSelector="metadata.name=a")).names == ["a"]
    assert "a" not in (await api.get(api.maps, fieldSelector="metadata.name!=a")).names
    query = f"metadata.namespace={api.name},metadata.name=b"
    assert (await api.get("/api/v1/configmaps", fieldSelector=query)).names == ["b"]


async def test_pods_are_selected_by_node_and_phase(api: Api) -> None:
    await api.make(api.pods, pod("here", nodeName=api.name))
    await api.make(api.pods, pod("nowhere"))
    assert (await api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={api.name}")).names == ["here"]
    assert (await api.get(api.pods, fieldSelector="spec.nodeName=")).names == ["nowhere"]
    await api.patch(f"{api.pods}/here/status", {"status": {"phase": "Running"}})
    assert (await api.get(api.pods, fieldSelector="status.phase=Running")).names == ["here"]
    assert (await api.get(api.pods, fieldSelector="status.phase=Pending")).names == ["nowhere"]
    await api.delete(f"{api.pods}/here", gracePeriodSeconds=0)
