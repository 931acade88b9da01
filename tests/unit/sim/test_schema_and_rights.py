"""The embedded API server refuses what the CRD's schema and RBAC refuse, in the words of the real one (1.34)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from reconciler.api.clock import SystemClock
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from reconciler.kube.resources import CONFIGMAPS, NODERUNTIMES, NODES, PODS, RUNTIMECLASSES
from reconciler.kube.transport import Response
from reconciler.sim import kinds
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

PATH = "/apis/runtime-reconciler.io/v1alpha1/noderuntimes"


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(clock=SystemClock(), rng=random.Random(1))


def client(server: ApiServer, user: str = "admin") -> Client:
    return Client(MemoryTransport(server, user=user), rng=random.Random(2))


def stored_spec(server: ApiServer) -> Any:
    record = server.store.get(kinds.NODERUNTIMES, ("", "kata"))
    return None if record is None else record.object["spec"]


def body(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "kata"}, "spec": spec}


async def test_an_unknown_field_is_pruned_unless_asked_to_be_strict(server: ApiServer) -> None:
    stored = await client(server).create(NODERUNTIMES, body(paused=True, pausd=True))
    assert stored.spec.paused
    assert stored_spec(server) == {"paused": True}


async def test_a_strict_write_names_the_unknown_field(server: ApiServer) -> None:
    with pytest.raises(ApiError) as refused:
        await client(server).create(NODERUNTIMES, body(phases={"install": {"image": "x", "imag": "y"}}), rehearse=True)
    assert refused.value.status == 400
    head = 'NodeRuntime in version "v1alpha1" cannot be handled as a NodeRuntime: '
    assert refused.value.message == f'{head}strict decoding error: unknown field "spec.phases.install.imag"'


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"handlers": [{"name": 3}]}, "spec.handlers[0].name: Invalid value: in body must be of type string"),
        ({"handlers": [{}]}, "spec.handlers[0].name: Required value"),
        ({"handlers": [{"name": "a"}, {"name": "a"}]}, "spec.handlers[1]: Duplicate value: ['a']"),
        ({"handlers": [{"name": "A"}]}, "in body should match"),
        ({"handlers": {}}, "spec.handlers: Invalid value: in body must be of type array"),
        ({"rollout": {"maxUnavailable": "a"}}, "spec.rollout.maxUnavailable: Invalid value: 'a': in body should match"),
        ({"rollout": {"maxUnavailable": 0}}, "spec.rollout.maxUnavailable: Invalid value: 0: out of bounds"),
        (
            {"rollout": {"maxUnavailable": "0%"}},
            "spec.rollout.maxUnavailable: Invalid value: '0%': in body should match",
        ),
        ({"rollout": {"bakeSeconds": -1}}, "spec.rollout.bakeSeconds: Invalid value: -1: out of bounds"),
        ({"upgrade": {"strategy": "No"}}, "supported values: InPlace, Reinstall"),
        ({"phases": {"install": {"image": ""}}}, "its length is out of bounds"),
        ({"paused": 1}, "spec.paused: Invalid value: in body must be of type boolean"),
    ],
)
async def test_what_does_not_fit_is_refused(server: ApiServer, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as refused:
        await client(server).create(NODERUNTIMES, body(**spec))
    assert words in refused.value.message


async def test_an_older_crd_lets_it_through(server: ApiServer) -> None:
    server.knobs.schema = False
    await client(server).create(NODERUNTIMES, body(paused=1))
    assert stored_spec(server) == {"paused": 1}


async def test_a_rehearsed_pod_is_checked_and_not_stored(server: ApiServer) -> None:
    container = {"name": "payload", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    with pytest.raises(Invalid) as refused:
        await client(server).create(PODS, pod, "ns", rehearse=True)
    assert refused.value.message == ('Pod "p" is invalid: spec.containers[0].volumeMounts[0].name: Not found: "v"')
    pod["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    await client(server).create(PODS, pod, "ns", rehearse=True)
    with pytest.raises(NotFound):
        await client(server).get(PODS, "p", "ns")


async def test_a_pull_policy_is_one_of_three(server: ApiServer) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "x", "image": "x", "imagePullPolicy": "Sometimes"}]},
    }
    with pytest.raises(Invalid) as refused:
        await client(server).create(PODS, pod, "ns")
    assert 'containers[0].imagePullPolicy: Unsupported value: "Sometimes"' in refused.value.message


async def test_a_right_that_was_taken_is_missed_by_its_user_only(server: ApiServer) -> None:
    await client(server).create(NODES, {"metadata": {"name": "n1"}})
    server.knobs.rights.take("controller", "patch", "nodes")
    with pytest.raises(Forbidden) as refused:
        await client(server, "controller:1").patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}})
    assert refused.value.message == (
        'nodes "n1" is forbidden: User "controller:1" cannot patch resource "nodes" '
        'in API group "" at the cluster scope'
    )
    await client(server, "kubelet").patch(NODES, "n1", {"metadata": {"labels": {"a": "b"}}})
    await client(server, "controller:1").patch(NODES, "n1", {"status": {}}, subresource="status")
    server.knobs.rights.give("controller", "patch", "nodes")
    await client(server, "controller:1").patch(NODES, "n1", {"metadata": {"labels": {"a": "c"}}})


async def test_lists_and_watches_are_rights_of_their_own(server: ApiServer) -> None:
    server.knobs.rights.take("controller", "watch", "noderuntimes")
    await client(server, "controller").list(NODERUNTIMES)
    transport = MemoryTransport(server, user="controller")
    async with transport.stream(PATH, query={}, timeout=5) as stream:
        assert stream.status == 403
    listed: Response = await transport.request("GET", PATH)
    assert listed.status == 200


async def test_data_of_a_config_map_are_strings(server: ApiServer) -> None:
    with pytest.raises(ApiError) as refused:
        await client(server).create(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"n": 1}}, "ns")
    assert (refused.value.status, (await client(server).list(CONFIGMAPS, "ns"))[0]) == (400, [])


async def test_a_rehearsed_change_or_deletion_is_checked_and_not_done(server: ApiServer) -> None:
    admin = client(server)
    made = await admin.create(NODES, {"metadata": {"name": "a"}})
    answer = await admin.patch(NODES, "a", {"metadata": {"labels": {"x": "1"}}}, rehearse=True)
    await admin.delete(NODES, "a", uid=made.metadata.uid, rehearse=True)
    assert (answer.metadata.labels, await admin.get(NODES, "a")) == ({"x": "1"}, made)
    with pytest.raises(Conflict):
        await admin.delete(NODES, "a", uid="other", rehearse=True)
    with pytest.raises(NotFound):
        await admin.patch(NODES, "b", {}, rehearse=True)


@pytest.mark.parametrize(
    ("name", "fields", "status", "words"),
    [
        ("Kata", {"handler": "kata"}, 422, 'metadata.name: Invalid value: "Kata"'),
        ("kata.v2", {"handler": "kata.v2"}, 422, 'handler: Invalid value: "kata.v2"'),
        ("kata", {"handler": "kata", "overhead": {"podFixed": {"memory": "plenty"}}}, 400, "overhead.podFixed.memory"),
    ],
)
async def test_a_runtimeclass_has_the_names_and_quantities_that_kubernetes_takes(
    server: ApiServer, name: str, fields: dict[str, Any], status: int, words: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await client(server).create(RUNTIMECLASSES, {"metadata": {"name": name}, **fields})
    assert refused.value.status == status
    assert words in refused.value.message
    assert (await client(server).list(RUNTIMECLASSES))[0] == []


async def test_an_object_is_judged_before_its_name(server: ApiServer) -> None:
    good = {"metadata": {"name": "kata"}, "handler": "kata"}
    await client(server).create(RUNTIMECLASSES, good)
    with pytest.raises(AlreadyExists):
        await client(server).create(RUNTIMECLASSES, good, rehearse=True)
    with pytest.raises(Invalid):
        await client(server).create(RUNTIMECLASSES, {**good, "handler": "Kata"}, rehearse=True)
