"""Deletion: preconditions, finalizers, pods that are marked first, and what becomes of dependents."""

from __future__ import annotations

import pytest

from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from tests.conformance.api import RUNTIMES, Api, Object, named, owned, pod, runtime


async def test_what_is_gone_at_once_is_answered_with_a_status(api: Api) -> None:
    made = await api.make(api.maps, named("m"))
    answer = await api.delete(f"{api.maps}/m")
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (200, "Status", "Success")
    assert answer.body["details"] == {"name": "m", "kind": "configmaps", "uid": made.meta["uid"]}
    assert (await api.get(f"{api.maps}/m")).status == 404


async def test_a_uid_that_does_not_match_is_409_and_nothing_is_deleted(api: Api) -> None:
    made = await api.make(api.maps, named("m"))
    answer = await api.delete(f"{api.maps}/m", preconditions={"uid": "another"})
    assert answer.said == (409, "Conflict")
    words = f"the UID in the precondition (another) does not match the UID in record ({made.meta['uid']})"
    assert words in answer.body["message"]
    assert (await api.delete(f"{api.maps}/m", preconditions={"uid": made.meta["uid"]})).status == 200


async def test_a_version_that_does_not_match_is_409(api: Api) -> None:
    made = await api.make(api.maps, named("m"))
    changed = await api.patch(f"{api.maps}/m", {"data": {"a": "1"}})
    answer = await api.delete(f"{api.maps}/m", preconditions={"resourceVersion": made.version})
    assert answer.said == (409, "Conflict")
    assert (await api.delete(f"{api.maps}/m", preconditions={"resourceVersion": changed.version})).status == 200


async def test_a_finalizer_holds_an_object_that_is_marked(api: Api) -> None:
    made = await api.make(RUNTIMES, runtime(api.name, finalizers=["a.b/c"]))
    marked = await api.delete(f"{RUNTIMES}/{api.name}")
    assert (marked.status, marked.body["kind"]) == (200, "NodeRuntime")
    assert "deletionTimestamp" in marked.meta
    assert marked.meta["deletionGracePeriodSeconds"] == 0
    assert (made.meta["generation"], marked.meta["generation"]) == (1, 2)


async def test_a_second_deletion_changes_nothing(api: Api) -> None:
    await api.make(api.maps, named("m", finalizers=["a.b/c"]))
    first = await api.delete(f"{api.maps}/m")
    second = await api.delete(f"{api.maps}/m")
    assert (second.status, second.version) == (200, first.version)
    await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": None}})


async def test_what_is_marked_takes_no_new_finalizer_and_stays_marked(api: Api) -> None:
    await api.make(api.maps, named("m", finalizers=["a.b/c"]))
    await api.delete(f"{api.maps}/m")
    more = await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}})
    assert more.said == (422, "Invalid")
    words = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new"
    assert words in more.body["message"]
    undone = await api.patch(f"{api.maps}/m", {"metadata": {"deletionTimestamp": None}})
    assert "deletionTimestamp" in undone.meta
    await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": None}})


async def test_what_is_marked_can_still_be_changed(api: Api) -> None:
    await api.make(api.maps, named("m", finalizers=["a.b/c"]))
    await api.delete(f"{api.maps}/m")
    changed = await api.patch(f"{api.maps}/m", {"data": {"a": "1"}})
    assert (changed.status, changed.body["data"]) == (200, {"a": "1"})
    await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": None}})


async def test_a_name_is_taken_until_its_object_is_gone(api: Api) -> None:
    await api.make(api.maps, named("m", finalizers=["a.b/c"]))
    await api.delete(f"{api.maps}/m")
    answer = await api("POST", api.maps, named("m"))
    assert answer.said == (409, "AlreadyExists")
    assert answer.body["message"] == 'object is being deleted: configmaps "m" already exists'
    await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("patch", [None, []])
async def test_the_last_finalizer_takes_the_object_along_without_an_event_of_its_own(
    api: Api, patch: list[str] | None
) -> None:
    made = await api.make(api.maps, named("m", finalizers=["a.b/c"]))
    marked = await api.delete(f"{api.maps}/m")
    answer = await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": patch}})
    assert (answer.status, answer.version) == (200, marked.version)
    assert "finalizers" not in answer.meta
    async with api.watch(api.maps, resourceVersion=made.version) as watch:
        events = await watch.take(2)
    assert [kind for kind, _ in events] == ["MODIFIED", "DELETED"]
    assert events[1][1]["metadata"]["finalizers"] == ["a.b/c"]
    assert (await api.get(f"{api.maps}/m")).status == 404


async def test_one_of_two_finalizers_is_taken_off(api: Api) -> None:
    await api.make(api.maps, named("m", finalizers=["a.b/c", "d.e/f"]))
    await api.delete(f"{api.maps}/m")
    left = await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": ["d.e/f"]}})
    assert (left.status, left.meta["finalizers"]) == (200, ["d.e/f"])
    assert (await api.get(f"{api.maps}/m")).status == 200
    await api.patch(f"{api.maps}/m", {"metadata": {"finalizers": None}})


# --- pods ---


async def bound(api: Api, name: str, **spec: object) -> str:
    """A pod on a node; its version."""
    return (await api.make(api.pods, pod(name, nodeName=api.name, **spec))).version


async def test_a_pod_on_a_node_is_marked_for_its_kubelet(api: Api) -> None:
    await bound(api, "p", terminationGracePeriodSeconds=7)
    marked = await api.delete(f"{api.pods}/p")
    assert (marked.status, marked.body["kind"]) == (200, "Pod")
    assert marked.meta["deletionGracePeriodSeconds"] == 7
    assert marked.meta["generation"] == 2
    assert (await api.get(f"{api.pods}/p")).status == 200
    await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)
    assert (await api.get(f"{api.pods}/p")).status == 404


async def test_a_grace_period_can_be_shortened_and_not_made_longer(api: Api) -> None:
    await bound(api, "p", terminationGracePeriodSeconds=30)
    graces = []
    for options in ({}, {"gracePeriodSeconds": 60}, {"gracePeriodSeconds": 5}, {}):
        graces.append((await api.delete(f"{api.pods}/p", **options)).meta["deletionGracePeriodSeconds"])
    assert graces == [30, 30, 5, 5]
    await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)


async def test_a_pod_has_thirty_seconds_unless_it_says_otherwise(api: Api) -> None:
    await bound(api, "p")
    assert (await api.delete(f"{api.pods}/p")).meta["deletionGracePeriodSeconds"] == 30
    await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)


async def test_a_negative_grace_period_is_one_second(api: Api) -> None:
    await bound(api, "p")
    assert (await api.delete(f"{api.pods}/p", gracePeriodSeconds=-1)).meta["deletionGracePeriodSeconds"] == 1
    await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)


async def test_a_pod_that_is_removed_at_once_is_marked_all_the_same(api: Api) -> None:
    version = await bound(api, "p")
    answer = await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)
    assert (answer.body["kind"], answer.meta["deletionGracePeriodSeconds"]) == ("Pod", 0)
    async with api.watch(api.pods, resourceVersion=version) as watch:
        events = await watch.take(2)
    assert [kind for kind, _ in events] == ["MODIFIED", "DELETED"]
    assert all("deletionTimestamp" in obj["metadata"] for _, obj in events)


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    await api.make(api.pods, pod("p"))
    await api.delete(f"{api.pods}/p")
    assert (await api.get(f"{api.pods}/p")).status == 404


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_goes_at_once(api: Api, phase: str) -> None:
    await bound(api, "p")
    await api.patch(f"{api.pods}/p/status", {"status": {"phase": phase}})
    await api.delete(f"{api.pods}/p")
    assert (await api.get(f"{api.pods}/p")).status == 404


async def test_a_finalizer_holds_a_pod_past_its_grace(api: Api) -> None:
    await api.make(api.pods, {**pod("p", nodeName=api.name), "metadata": {"name": "p", "finalizers": ["a.b/c"]}})
    await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)
    held = await api.get(f"{api.pods}/p")
    assert (held.status, held.meta["deletionGracePeriodSeconds"]) == (200, 0)
    await api.patch(f"{api.pods}/p", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{api.pods}/p")).status == 404


async def test_a_dry_run_of_a_pods_deletion_marks_nothing(api: Api) -> None:
    version = await bound(api, "p")
    assert (await api("DELETE", f"{api.pods}/p", dryRun="All")).status == 200
    assert (await api.get(f"{api.pods}/p")).version == version
    await api.delete(f"{api.pods}/p", gracePeriodSeconds=0)


# --- dependents ---


async def test_dependents_follow_their_owner(api: Api) -> None:
    owner = await api.make(api.maps, named("owner"))
    await api.make(api.maps, owned("child", owner))
    await api.delete(f"{api.maps}/owner", propagationPolicy="Background")
    await api.gone(f"{api.maps}/child")


async def test_a_dependent_of_an_owner_that_was_never_there_is_taken_away(api: Api) -> None:
    owner = await api.make(api.maps, named("owner"))
    await api.delete(f"{api.maps}/owner")
    await api.make(api.maps, owned("child", owner))
    await api.gone(f"{api.maps}/child")


async def test_a_dependent_of_two_stays_with_the_one_that_is_left(api: Api) -> None:
    first, second = await api.make(api.maps, named("first")), await api.make(api.maps, named("second"))
    child = owned("child", first)
    child["metadata"]["ownerReferences"] += owned("child", second)["metadata"]["ownerReferences"]
    await api.make(api.maps, child)
    await api.delete(f"{api.maps}/first", propagationPolicy="Background")
    left = await api.until(f"{api.maps}/child", lambda obj: obj is None or _owners(obj) == ["second"])
    assert left is not None


def _owners(obj: Object) -> list[str]:
    return [ref["name"] for ref in obj["metadata"].get("ownerReferences") or ()]


@pytest.mark.parametrize("block", [True, False])
async def test_a_foreground_deletion_takes_dependents_although_the_owner_is_held(api: Api, block: bool) -> None:
    owner = await api.make(RUNTIMES, runtime(api.name, finalizers=["a.b/c"]))
    await api.make(api.maps, owned("child", owner, block=block))
    marked = await api.delete(f"{RUNTIMES}/{api.name}", propagationPolicy="Foreground")
    assert sorted(marked.meta["finalizers"]) == ["a.b/c", "foregroundDeletion"]
    await api.gone(f"{api.maps}/child")
    left = await api.until(f"{RUNTIMES}/{api.name}", lambda obj: obj is None or len(obj["metadata"]["finalizers"]) == 1)
    assert left is not None
    assert left["metadata"]["finalizers"] == ["a.b/c"]


@pytest.mark.parametrize("block", [True, False])
async def test_a_foreground_deletion_waits_for_the_dependents_that_block_it(api: Api, block: bool) -> None:
    owner = await api.make(api.maps, named("owner"))
    child = owned("child", owner, block=block)
    child["metadata"]["finalizers"] = ["a.b/c"]
    await api.make(api.maps, child)
    await api.delete(f"{api.maps}/owner", propagationPolicy="Foreground")
    await api.until(f"{api.maps}/child", lambda obj: obj is not None and "deletionTimestamp" in obj["metadata"])
    if block:
        assert (await api.get(f"{api.maps}/owner")).meta["finalizers"] == ["foregroundDeletion"]
    else:
        await api.gone(f"{api.maps}/owner")
    await api.patch(f"{api.maps}/child", {"metadata": {"finalizers": None}})
    await api.gone(f"{api.maps}/owner")


async def test_an_orphan_deletion_leaves_dependents_without_their_owner(api: Api) -> None:
    owner = await api.make(api.maps, named("owner"))
    await api.make(api.maps, owned("child", owner))
    await api.delete(f"{api.maps}/owner", propagationPolicy="Orphan")
    await api.gone(f"{api.maps}/owner")
    left = await api.get(f"{api.maps}/child")
    assert left.status == 200
    assert "ownerReferences" not in left.meta


async def test_owner_references_are_merged_by_uid_in_a_strategic_patch(api: Api) -> None:
    first, second = await api.make(api.maps, named("first")), await api.make(api.maps, named("second"))
    await api.make(api.maps, owned("child", first))
    more = {"metadata": {"ownerReferences": owned("child", second)["metadata"]["ownerReferences"]}}
    await api.patch(f"{api.maps}/child", more, STRATEGIC_MERGE_PATCH)
    gone = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": first.meta["uid"]}]}}
    answer = await api.patch(f"{api.maps}/child", gone, STRATEGIC_MERGE_PATCH)
    assert _owners(answer.body) == ["second"]


@pytest.mark.parametrize("policy", ["Sideways", ""])
async def test_an_unknown_propagation_is_422(api: Api, policy: str) -> None:
    await api.make(api.maps, named("m"))
    assert (await api.delete(f"{api.maps}/m", propagationPolicy=policy)).said == (422, "Invalid")
