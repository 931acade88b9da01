"""What is special about single kinds: status and generation, Leases, Events, and our own resource with its schema."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from tests.conformance.api import NODES, RUNTIMES, Api, Object, named, pod, runtime

# --- status and generation ---


async def test_the_status_of_a_custom_resource_changes_only_by_its_subresource(api: Api) -> None:
    path = f"{RUNTIMES}/{api.name}"
    made = await api.make(RUNTIMES, {**runtime(api.name, spec={"paused": True}), "status": {"inWork": ["a"]}})
    assert "status" not in made.body
    there = await api.patch(f"{path}/status", {"status": {"inWork": ["a"]}, "spec": {"paused": False}})
    assert (there.body["status"], there.body["spec"]) == ({"inWork": ["a"]}, {"paused": True})
    assert there.meta["generation"] == 1
    there = await api.patch(path, {"spec": {"paused": False}, "status": {"inWork": ["b"]}})
    assert (there.body["status"], there.body["spec"]) == ({"inWork": ["a"]}, {"paused": False})
    assert there.meta["generation"] == 2


async def test_metadata_of_a_custom_resource_is_not_changed_through_its_status(api: Api) -> None:
    await api.make(RUNTIMES, runtime(api.name))
    meta = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]}
    there = await api.patch(f"{RUNTIMES}/{api.name}/status", {"metadata": meta, "status": {"inWork": ["a"]}})
    assert there.status == 200
    assert not {"labels", "annotations", "finalizers"} & set(there.meta)


async def test_a_stale_version_is_refused_in_a_status_too(api: Api) -> None:
    made = await api.make(RUNTIMES, runtime(api.name))
    await api.patch(f"{RUNTIMES}/{api.name}/status", {"status": {"inWork": ["a"]}})
    patch = {"metadata": {"resourceVersion": made.version}, "status": {"inWork": ["b"]}}
    assert (await api.patch(f"{RUNTIMES}/{api.name}/status", patch)).said == (409, "Conflict")


async def test_labels_and_annotations_do_not_raise_the_generation(api: Api) -> None:
    await api.make(RUNTIMES, runtime(api.name))
    there = await api.patch(f"{RUNTIMES}/{api.name}", {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}})
    assert there.meta["generation"] == 1


async def test_a_nodes_status_takes_labels_and_annotations_and_leaves_the_spec(api: Api) -> None:
    await api.make(NODES, named(api.name, labels={"a": "b"}))
    body = {
        "metadata": {"labels": {"x": "y"}, "annotations": {"k": "v"}},
        "status": {"conditions": [{"type": "T", "status": "True"}]},
        "spec": {"unschedulable": True},
    }
    there = await api.patch(f"{NODES}/{api.name}/status", body, STRATEGIC_MERGE_PATCH)
    assert there.meta["labels"] == {"a": "b", "x": "y"}
    assert there.meta["annotations"]["k"] == "v"
    assert there.body["status"]["conditions"][0]["type"] == "T"
    assert "unschedulable" not in there.body.get("spec", {})
    assert "generation" not in there.meta


async def test_a_nodes_status_is_not_changed_on_the_main_path(api: Api) -> None:
    await api.make(NODES, named(api.name))
    body = {"metadata": {"labels": {"x": "y"}}, "status": {"conditions": [{"type": "T", "status": "True"}]}}
    there = await api.patch(f"{NODES}/{api.name}", body, STRATEGIC_MERGE_PATCH)
    assert there.meta["labels"] == {"x": "y"}
    assert "conditions" not in there.body.get("status", {})


async def test_a_pod_begins_pending_with_generation_one(api: Api) -> None:
    made = await api.make(api.pods, {**pod("p"), "status": {"phase": "Running"}})
    assert (made.body["status"]["phase"], made.meta["generation"]) == ("Pending", 1)


async def test_a_pods_status_takes_labels_and_leaves_the_spec(api: Api) -> None:
    await api.make(api.pods, pod("p"))
    body = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}, "spec": {"priority": 3}}
    there = await api.patch(f"{api.pods}/p/status", body)
    assert (there.status, there.meta["labels"], there.meta["generation"]) == (200, {"x": "y"}, 1)
    assert there.body["status"]["phase"] == "Running"
    there = await api.patch(f"{api.pods}/p", {"status": {"phase": "Failed"}})
    assert there.body["status"]["phase"] == "Running"


async def test_the_spec_of_a_pod_is_fixed_but_for_its_images(api: Api) -> None:
    await api.make(api.pods, pod("p"))
    answer = await api.patch(f"{api.pods}/p", {"spec": {"nodeName": "n"}})
    assert answer.said == (422, "Invalid")
    assert answer.body["message"].startswith('Pod "p" is invalid: spec: Forbidden: pod updates may not change fields ')
    image = {"spec": {"containers": [{"name": "main", "image": "none.invalid/none:2"}]}}
    there = await api.patch(f"{api.pods}/p", image, STRATEGIC_MERGE_PATCH)
    assert (there.status, there.meta["generation"]) == (200, 2)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"image": "a"}]}, "spec.containers[0].name: Required value"),
        (
            {"containers": [{"name": "a", "image": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
    ],
)
async def test_a_pod_that_cannot_be_run_is_422(api: Api, spec: Object, words: str) -> None:
    answer = await api("POST", api.pods, {**named("p"), "spec": spec})
    assert answer.said == (422, "Invalid")
    assert answer.body["message"] == f'Pod "p" is invalid: {words}'


async def test_a_pod_of_a_service_account_that_is_not_there_is_403(api: Api) -> None:
    answer = await api("POST", api.pods, pod("p", serviceAccountName="none"))
    assert answer.said == (403, "Forbidden")
    why = f'error looking up service account {api.name}/none: serviceaccount "none" not found'
    assert answer.body["message"] == f'pods "p" is forbidden: {why}'


STRICT = {"fieldValidation": "Strict"}


async def test_strict_validation_names_the_unknown_fields_of_a_pod(api: Api) -> None:
    body = pod("p", nodename="n", containers=[{"name": "main", "image": "a", "imagee": "a"}])
    answer = await api("POST", api.pods, body, **STRICT)
    assert answer.said == (400, "BadRequest")
    fields = 'unknown field "spec.containers[0].imagee", unknown field "spec.nodename"'
    assert answer.body["message"] == f'Pod in version "v1" cannot be handled as a Pod: strict decoding error: {fields}'


# --- Leases ---


LEASES = ("leases", "coordination.k8s.io")
MOMENT = "2026-01-01T00:00:00.123456Z"


async def lease(api: Api, **spec: Any) -> Any:
    whole = {"holderIdentity": "a", "leaseDurationSeconds": 10, "acquireTime": MOMENT, "renewTime": MOMENT, **spec}
    return await api("POST", api.of(*LEASES), {**named("l"), "spec": whole})


async def test_of_two_who_renew_a_lease_from_one_version_one_is_refused(api: Api) -> None:
    path, made = f"{api.of(*LEASES)}/l", await lease(api)
    first = {**named("l", resourceVersion=made.version), "spec": {**made.body["spec"], "holderIdentity": "b"}}
    second = {**named("l", resourceVersion=made.version), "spec": {**made.body["spec"], "holderIdentity": "c"}}
    assert (await api("PUT", path, first)).status == 200
    assert (await api("PUT", path, second)).said == (409, "Conflict")
    assert (await api.get(path)).body["spec"]["holderIdentity"] == "b"


async def test_a_lease_is_not_replaced_without_a_version(api: Api) -> None:
    await lease(api)
    answer = await api("PUT", f"{api.of(*LEASES)}/l", {**named("l"), "spec": {"holderIdentity": "b"}})
    assert answer.said == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer.body["message"]


async def test_a_lease_that_is_not_there_is_made_by_a_replacement(api: Api) -> None:
    answer = await api("PUT", f"{api.of(*LEASES)}/l", {**named("l"), "spec": {"holderIdentity": "b"}})
    assert answer.status == 201


async def test_times_of_a_lease_have_microseconds(api: Api) -> None:
    assert (await lease(api, renewTime="2026-01-01T00:00:00Z")).said == (400, "BadRequest")
    assert (await lease(api)).body["spec"]["renewTime"] == MOMENT


@pytest.mark.parametrize("spec", [{"leaseDurationSeconds": 0}, {"leaseTransitions": -1}])
async def test_figures_of_a_lease_have_limits(api: Api, spec: Object) -> None:
    answer = await lease(api, **spec)
    assert answer.said == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == f"spec.{next(iter(spec))}"


async def test_a_lease_can_be_given_back(api: Api) -> None:
    made = await lease(api)
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": MOMENT, "renewTime": MOMENT}
    answer = await api("PUT", f"{api.of(*LEASES)}/l", {**named("l", resourceVersion=made.version), "spec": spec})
    assert answer.status == 200
    assert answer.body["spec"].get("holderIdentity") == ""


# --- Events ---


def event(namespace: str, **changes: Any) -> Object:
    return {
        **named("e"),
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "p"},
        "reason": "Reason",
        "note": "what was seen",
        "action": "Action",
        "type": "Normal",
        "eventTime": MOMENT,
        "reportingController": "example.org/controller",
        "reportingInstance": "one",
        **changes,
    }


def events(api: Api) -> str:
    return api.of("events", "events.k8s.io")


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": ""},
        {"reason": "r" * 129},
        {"action": ""},
        {"action": "a" * 129},
        {"type": "Odd"},
        {"note": "n" * 1025},
        {"eventTime": None},
        {"reportingController": ""},
        {"reportingController": "a b"},
        {"reportingInstance": ""},
        {"reportingInstance": "i" * 129},
        {"regarding": {"kind": "Node", "name": "n"}},
    ],
)
async def test_an_event_that_breaks_a_rule_is_422(api: Api, changes: Object) -> None:
    assert (await api("POST", events(api), event(api.name, **changes))).said == (422, "Invalid")


async def test_what_an_event_may_be_at_most(api: Api) -> None:
    longest = {"reason": "r" * 128, "action": "a" * 128, "note": "n" * 1024, "reportingInstance": "i" * 128}
    await api.make(events(api), event(api.name, **longest))


async def test_an_event_of_a_node_lies_in_the_default_namespace(api: Api) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    body = event("", regarding={"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"})
    await api.make(path, {**body, "metadata": {"name": api.name}})
    await api.delete(f"{path}/{api.name}")


async def test_an_event_is_counted_up_as_a_series_from_two_on(api: Api) -> None:
    await api.make(events(api), event(api.name))
    one = await api.patch(f"{events(api)}/e", {"series": {"count": 1, "lastObservedTime": MOMENT}})
    assert one.said == (422, "Invalid")
    two = await api.patch(f"{events(api)}/e", {"series": {"count": 2, "lastObservedTime": MOMENT}})
    assert two.body["series"] == {"count": 2, "lastObservedTime": MOMENT}


async def test_nothing_else_of_an_event_can_be_changed(api: Api) -> None:
    await api.make(events(api), event(api.name))
    assert (await api.patch(f"{events(api)}/e", {"note": "other"})).said == (422, "Invalid")


# --- our own resource ---


async def test_unknown_fields_are_pruned(api: Api) -> None:
    made = await api.make(RUNTIMES, runtime(api.name, spec={"paused": True, "nonsense": 1}))
    assert made.body["spec"] == {"paused": True}


async def test_strict_validation_names_an_unknown_field(api: Api) -> None:
    answer = await api("POST", RUNTIMES, runtime(api.name, spec={"nonsense": 1}), **STRICT)
    assert answer.said == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.nonsense"' in answer.body["message"]


async def test_an_unknown_field_is_a_warning_unless_it_is_asked_otherwise(api: Api) -> None:
    answer = await api("POST", RUNTIMES, runtime(api.name, spec={"nonsense": 1}))
    assert answer.headers["warning"] == '299 - "unknown field \\"spec.nonsense\\""'
    answer = await api.patch(f"{RUNTIMES}/{api.name}", {"spec": {"other": 1}}, fieldValidation="Ignore")
    assert "warning" not in answer.headers


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"paused": "yes"}, "spec.paused"),
        ({"handlers": [{"runtimeType": "io.containerd.runc.v2"}]}, "spec.handlers[0].name"),
        ({"rollout": {"bakeSeconds": -1}}, "spec.rollout.bakeSeconds"),
        ({"rollout": {"maxUnavailable": []}}, "spec.rollout.maxUnavailable"),
        ({"rollout": {"maxUnavailable": 0}}, "spec.rollout.maxUnavailable"),
        ({"rollout": {"maxUnavailable": "0%"}}, "spec.rollout.maxUnavailable"),
        ({"uninstall": {"whenInUse": "Never"}}, "spec.uninstall.whenInUse"),
    ],
)
async def test_what_the_schema_refuses_is_422_and_names_the_field(api: Api, spec: Object, field: str) -> None:
    answer = await api("POST", RUNTIMES, runtime(api.name, spec=spec))
    assert answer.said == (422, "Invalid")
    assert f'NodeRuntime.runtime-reconciler.io "{api.name}" is invalid: ' in answer.body["message"]
    assert field in {cause["field"] for cause in answer.body["details"]["causes"]}


async def test_a_name_longer_than_forty_letters_is_422(api: Api) -> None:
    assert (await api("POST", RUNTIMES, runtime((api.name + "-" + "x" * 40)[:40]))).status == 201
    assert (await api("POST", RUNTIMES, runtime((api.name + "-" + "x" * 41)[:41]))).said == (422, "Invalid")


async def test_null_is_no_value_of_a_field(api: Api) -> None:
    await api.make(
        RUNTIMES, runtime(api.name, spec={"paused": True, "handlers": [{"name": "a", "runtimeType": "b.c"}]})
    )
    there = await api.patch(f"{RUNTIMES}/{api.name}", {"spec": {"paused": None, "handlers": None}})
    assert there.body["spec"] == {}


async def test_a_replacement_of_a_custom_resource_needs_a_version(api: Api) -> None:
    await api.make(RUNTIMES, runtime(api.name))
    assert (await api("PUT", f"{RUNTIMES}/{api.name}", runtime(api.name))).said == (422, "Invalid")


async def test_items_of_a_list_of_custom_resources_say_what_they_are(api: Api) -> None:
    await api.make(RUNTIMES, runtime(api.name))
    listed = await api.get(RUNTIMES, fieldSelector=f"metadata.name={api.name}")
    assert listed.body["items"][0]["kind"] == "NodeRuntime"
