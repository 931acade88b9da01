"""Bad input is told on the NodeRuntime and in an Event, touches no node that it need not, and heals by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api import names
from reconciler.api.meta import ConfigMap
from reconciler.kube.errors import ApiError, Invalid
from reconciler.kube.resources import NODERUNTIMES, NODES, RUNTIMECLASSES, Resource
from reconciler.sim import kinds
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase

Drive = Callable[..., None]
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", True, "ServiceAccount", ConfigMap)
MORE = " (more: `kubectl reconciler explain node-1`)"

INSTALL = phase("seconds=1", f"drop={BINARY}")
UNINSTALL = phase("seconds=1", f"take={BINARY}")


def simple(**phases: Any) -> dict[str, Any]:
    """Payloads that end by themselves; all nodes at once after the canary."""
    return manifest(unavailable="100%", **{"install": INSTALL, "uninstall": UNINSTALL, **phases})


async def heals(s: Any, *reasons: str, runtime: str = RUNTIME) -> None:
    """The condition goes back, and an Event says so."""
    await s.says("Degraded", "False", "AsExpected", runtime)
    for reason in reasons:
        assert ("Normal", f"{reason} is over") in s.events("Recovered", runtime)


# --- unknown fields, wrong types, invalid values ---


def test_the_schema_refuses_wrong_types_and_names_unknown_fields(drive: Drive) -> None:
    async def main(s: Any) -> None:
        wrong = simple()
        wrong["spec"]["paused"] = "yes"
        with pytest.raises(Invalid) as refused:
            await s.create(wrong)
        assert refused.value.message == (
            'NodeRuntime.runtime-reconciler.io "kata" is invalid: '
            "spec.paused: Invalid value: in body must be of type boolean"
        )
        unknown = simple()
        unknown["spec"]["pausd"] = True
        with pytest.raises(ApiError) as strict:
            await s.cluster.admin.create(
                NODERUNTIMES, unknown, rehearse=True
            )  # as kubectl asks: fieldValidation=Strict
        head = 'NodeRuntime in version "v1alpha1" cannot be handled as a NodeRuntime: '
        assert strict.value.message == f'{head}strict decoding error: unknown field "spec.pausd"'

    drive(main)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "paused",
            "no",
            "the object cannot be read: Expected `bool`, got `str` - at `$.spec.paused`; "
            "correct it, and update the CRD",
        ),
        (
            "rollout",
            {"maxUnavailable": "many"},
            "the object cannot be read: Expected `str` matching regex '^[0-9]+%$' - at "
            "`$.spec.rollout.maxUnavailable`; correct it, and update the CRD",
        ),
        (
            "rollout",
            {"maxUnavailable": "0%"},
            "spec.rollout.maxUnavailable: 0% is less than 1, and no node would have its turn; "
            "spec.paused: true holds a rollout",
        ),
        (
            "nodeSelector",
            {"matchExpressions": [{"key": "a", "operator": "Inn"}]},
            "spec.nodeSelector.matchExpressions[0]: operator 'Inn' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            "snapshotters",
            [{"name": "s", "address": "relative"}],
            "spec.snapshotters[].address: 'relative' is not an absolute path",
        ),
    ],
)
def test_what_an_older_crd_let_through_is_told_and_nothing_is_begun(
    drive: Drive, field: str, value: Any, message: str
) -> None:
    async def main(s: Any) -> None:
        body = simple()
        body["spec"][field] = value
        await s.slip_in(body)
        assert await s.says("Degraded", "True", "InvalidSpec") == message
        assert s.condition("Progressing")["status"] == "False"
        assert s.condition("Progressing")["reason"] == "InvalidSpec"
        await s.until(lambda: s.events("InvalidSpec") == [("Warning", message)])
        await asyncio.sleep(400)  # past a resync
        assert s.touches() == []
        await s.patch({field: manifest()["spec"].get(field)})
        await heals(s, "InvalidSpec")
        await s.ready()
        await s.delete()
        await s.gone()

    drive(main)


def test_a_good_one_that_is_made_unreadable_stays_where_it_is_and_can_be_deleted(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple())
        await s.ready()
        await s.says("Available", "True", "AllNodesReady")
        before = s.touches()
        s.cluster.server.knobs.schema = False
        await s.patch({"paused": 3})
        await s.says("Degraded", "True", "InvalidSpec")
        await asyncio.sleep(400)
        assert s.touches() == before
        assert set(s.stages().values()) == {"ready"}
        await s.delete()
        await s.gone()

    drive(main)


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        (
            [{"name": "host", "mountPath": "/host"}],
            'phase install: Pod "rr-kata-install-{}-1" is invalid: '
            'spec.containers[0].volumeMounts[0].name: Not found: "host"',
        ),
    ],
)
def test_a_phase_that_no_api_server_would_take_is_told_before_a_node_is_touched(
    drive: Drive, mount: list[dict[str, str]], message: str
) -> None:
    async def main(s: Any) -> None:
        await s.create(simple(install={**INSTALL, "volumeMounts": mount}))
        told = await s.says("Degraded", "True", "InvalidPhase")
        head, tail = message.split("{}")
        assert told.startswith(head)
        assert told.endswith(tail)
        await s.until(lambda: s.events("InvalidPhase") == [("Warning", told)])
        assert s.touches() == []
        await s.patch({"phases": {"install": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}}})
        await heals(s, "InvalidPhase")
        await s.ready()

    drive(main)


# --- a selector that matches nothing ---


def test_a_selector_that_matches_nothing_is_told_until_a_node_matches(drive: Drive) -> None:
    async def main(s: Any) -> None:
        body = simple()
        body["spec"]["nodeSelector"] = {"matchLabels": {"pool": "kata"}}
        await s.create(body)
        message = await s.says("Progressing", "False", "NoNodeSelected")
        assert message == "spec.nodeSelector matches no node that can take part"
        await s.until(lambda: s.events("NoNodeSelected") == [("Warning", message)])
        assert s.condition("Available")["status"] == "False"
        assert s.touches() == []
        await s.mark("node-1", pool="kata")
        await s.says("Progressing", "False", "Complete")
        assert s.events("Recovered") == [("Normal", "NoNodeSelected is over")]
        assert s.stages() == {"node-1": "ready", "node-2": "absent"}

    drive(main)


def test_a_selector_that_matches_something_is_never_said_to_match_nothing(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple())
        await s.ready()
        await s.delete()
        await s.gone()
        assert s.events("NoNodeSelected") == []

    drive(main)


# --- two that want one thing ---


def rival(**spec: Any) -> dict[str, Any]:
    """A younger NodeRuntime with a handler and a class of its own, but for what `spec` says."""
    own = {"name": "other", "runtimeType": "io.containerd.runc.v2"}
    return {"metadata": {"name": "rival"}, "spec": {"handlers": [own], "rollout": {"bakeSeconds": 1}, **spec}}


NYDUS = {"name": "nydus", "address": "/run/nydus.sock"}


@pytest.mark.parametrize(
    ("mine", "spec", "reason", "what"),
    [
        ({}, {"handlers": [{"name": HANDLER}]}, "HandlerConflict", f"handler {HANDLER}"),
        (
            {},
            {"handlers": [{"name": "other", "runtimeClass": {"name": HANDLER}}]},
            "RuntimeClassConflict",
            f"RuntimeClass {HANDLER}",
        ),
        (
            {"snapshotters": [NYDUS]},
            {"snapshotters": [{**NYDUS, "address": "/run/other.sock"}]},
            "SnapshotterConflict",
            "snapshotter nydus",
        ),
        (
            {"snapshotters": [NYDUS]},
            {"snapshotters": [{**NYDUS, "name": "other"}]},
            "SnapshotterConflict",
            "snapshotter address /run/nydus.sock",
        ),
    ],
)
def test_of_two_that_want_one_thing_the_older_has_it_until_it_goes(
    drive: Drive, mine: dict[str, Any], spec: dict[str, Any], reason: str, what: str
) -> None:
    async def main(s: Any) -> None:
        older = simple()
        older["spec"].update(mine)
        await s.create(older)
        await asyncio.sleep(2)
        await s.cluster.admin.create(NODERUNTIMES, rival(**spec))
        message = await s.says("Degraded", "True", reason, "rival")
        assert message == (
            f"NodeRuntime kata is older and has {what} already; rename it in one of the two, or delete kata"
        )
        await s.until(lambda: s.events(reason, "rival") == [("Warning", message)])
        if not mine:  # no snapshotter listens on a simulated node
            await s.ready()
        await asyncio.sleep(60)
        assert s.condition("Degraded")["reason"] != reason
        assert not [
            n for n in s.cluster.nodes if "stage.runtime-reconciler.io/rival" in s.node(n)["metadata"]["labels"]
        ]
        assert s.condition("Progressing", "rival")["reason"] == reason
        await s.delete()
        await s.until(lambda: s.runtime() is None)
        await heals(s, reason, runtime="rival")

    drive(main)


# --- a RuntimeClass that is not ours ---


def test_a_runtimeclass_of_somebody_else_is_left_alone_and_waited_for(drive: Drive) -> None:
    async def main(s: Any) -> None:
        theirs = {"metadata": {"name": HANDLER}, "handler": "theirs"}
        await s.cluster.admin.create(RUNTIMECLASSES, theirs)
        await s.create(simple())
        message = await s.says("Degraded", "True", "RuntimeClassConflict")
        assert message == (
            "RuntimeClass kata-qemu exists and is not ours; remove it, or name another one in handlers[].runtimeClass"
        )
        await s.until(lambda: s.events("RuntimeClassConflict") == [("Warning", message)])
        assert s.condition("Progressing")["reason"] == "RuntimeClassConflict"
        await asyncio.sleep(400)
        assert s.touches() == []
        assert sum(1 for a in s.cluster.server.audit if a.rehearsed) == 2  # install and uninstall, once
        assert (await s.cluster.admin.get(RUNTIMECLASSES, HANDLER)).handler == "theirs"
        await s.delete()
        await s.until(lambda: s.runtime() is None)
        assert (await s.cluster.admin.get(RUNTIMECLASSES, HANDLER)).handler == "theirs"
        await s.create(simple())
        await s.says("Degraded", "True", "RuntimeClassConflict")
        await asyncio.sleep(6)  # nothing else is due
        await s.cluster.admin.delete(RUNTIMECLASSES, HANDLER)
        assert await s.until(lambda: s.condition("Degraded")["status"] == "False") < 2
        await heals(s, "RuntimeClassConflict")
        await s.ready()
        assert (await s.cluster.admin.get(RUNTIMECLASSES, HANDLER)).handler == HANDLER

    drive(main)


# --- payloads ---


def test_an_image_that_cannot_be_pulled_holds_the_canary_only_and_heals_when_it_is_there(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple(install={**INSTALL, "image": "registry.example/kata:9"}))
        message = await s.says("Degraded", "True", "ImagePullFailed")
        assert message == f'node-1: failed to pull and unpack image "registry.example/kata:9": not found{MORE}'
        await s.until(lambda: s.events("ImagePullFailed") == [("Warning", message)])
        told = set()
        for _ in range(240):  # it goes from ErrImagePull to ImagePullBackOff and back
            await asyncio.sleep(0.5)
            told.add((s.condition("Degraded")["message"], s.condition("Progressing")["message"]))
        assert told == {(message, "2 nodes to go: node-1: ImagePullFailed; node-2: WaitingForSlot")}
        assert s.stages() == {"node-1": "install", "node-2": "absent"}
        assert not [line for line in s.touches() if line == "PATCH nodes node-2"]
        assert len(s.events("ImagePullFailed")) == 1
        s.cluster.images.add("registry.example/kata:9")
        await s.ready(limit=400)
        await heals(s, "ImagePullFailed")

    drive(main)


def test_a_payload_that_fails_is_tried_again_and_heals(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple(install={**INSTALL, "args": ["needs=/opt/firmware", f"drop={BINARY}"]}))
        message = await s.says("Degraded", "True", "PayloadFailed")
        assert message == f"node-1: exit code 1: Error{MORE}"
        await s.until(lambda: s.events("PayloadFailed") == [("Warning", message)])
        await s.until(lambda: s.state("node-1").attempt == 2)
        for node in s.cluster.nodes.values():
            (node.root / "opt/firmware").write_text("x")
        await s.ready()
        await heals(s, "PayloadFailed")

    drive(main)


def test_a_payload_that_always_fails_is_given_up_on_undone_and_heals_by_a_new_revision(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple(install={**INSTALL, "args": ["exit=3"]}))
        message = await s.says("Degraded", "True", "NodesFailed", limit=300)
        assert message == f"1 node failed; node-1: PayloadFailed: exit code 3: Error{MORE}"
        await s.until(lambda: s.stages() == {"node-1": "failed", "node-2": "absent"})
        await s.until(lambda: s.events("NodesFailed") == [("Warning", message)])
        assert not [line for line in s.touches() if line == "PATCH nodes node-2"]
        await s.patch({"phases": {"install": INSTALL}})
        await s.ready()
        await heals(s, "NodesFailed")
        await s.delete()
        await s.gone()

    drive(main)


def test_a_payload_that_hangs_is_ended_at_its_timeout_and_heals(drive: Drive) -> None:
    async def main(s: Any) -> None:
        hanging = {**INSTALL, "args": ["waits-for=/opt/firmware", f"drop={BINARY}"], "timeoutSeconds": 20}
        await s.create(simple(install=hanging))
        message = await s.says("Degraded", "True", "PayloadTimedOut")
        assert message == f"node-1: phase install did not end within 20 s{MORE}"
        await s.until(lambda: s.events("PayloadTimedOut") == [("Warning", message)])
        for node in s.cluster.nodes.values():
            (node.root / "opt/firmware").write_text("x")
        await s.ready()
        await heals(s, "PayloadTimedOut")

    drive(main)


# --- rights ---


@pytest.mark.parametrize(
    ("verb", "resource", "words"),
    [
        ("create", "pods", 'cannot create resource "pods" in API group ""'),
        ("patch", "nodes", 'cannot patch resource "nodes" in API group ""'),
        ("create", "runtimeclasses", 'cannot create resource "runtimeclasses" in API group "node.k8s.io"'),
        ("create", "controllerrevisions", 'cannot create resource "controllerrevisions" in API group "apps"'),
        ("patch", "noderuntimes", 'cannot patch resource "noderuntimes" in API group "runtime-reconciler.io"'),
    ],
)
def test_a_missing_right_is_told_costs_few_requests_and_heals(
    drive: Drive, verb: str, resource: str, words: str
) -> None:
    async def main(s: Any) -> None:
        rights = s.cluster.server.knobs.rights
        rights.take("controller", verb, resource)
        await s.create(simple())
        message = await s.says("Degraded", "True", "Forbidden")
        assert words in message
        assert message.endswith("; see the rules of deploy/base/rbac.yaml")
        await s.until(lambda: [kind for kind, _ in s.events("Forbidden")] == ["Warning"])
        await asyncio.sleep(60)
        s.cluster.server.audit.clear()
        await asyncio.sleep(300)
        assert 0 < refusals(s) <= 2 * 300 / 15  # backed off, or asked again every 15 to 25 s
        assert writes_besides(s) == 0
        assert s.touches() == []
        rights.give("controller", verb, resource)
        await s.ready(limit=200)
        await heals(s, "Forbidden")

    drive(main)


@pytest.mark.parametrize("resource", ["nodes", "pods", "controllerrevisions", "runtimeclasses"])
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_right_to_look_that_is_missing_is_told_and_heals(drive: Drive, resource: str, verb: str) -> None:
    async def main(s: Any) -> None:
        rights = s.cluster.server.knobs.rights
        rights.take("controller", verb, resource)
        s.cluster.leader.kill()
        await s.create(simple())
        message = await s.says("Degraded", "True", "Forbidden")
        assert f'cannot {verb} resource "{resource}"' in message
        assert s.touches() == []
        await s.until(lambda: [kind for kind, _ in s.events("Forbidden")] == ["Warning"])
        s.cluster.server.audit.clear()
        await asyncio.sleep(300)
        assert 0 < refusals(s) < 60  # the reflector's backoff: 15 s in the mean
        assert s.touches() == []
        rights.give("controller", verb, resource)
        await s.ready()
        await heals(s, "Forbidden")

    drive(main)


def test_a_service_account_that_is_missing_is_told_before_a_node_is_touched_and_heals(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple(install={**INSTALL, "serviceAccountName": "payload"}))
        message = await s.says("Degraded", "True", "ServiceAccountMissing")
        assert message.startswith("phase install: pods ")
        assert message.endswith("; create ServiceAccount runtime-reconciler/payload, or name another")
        assert s.touches() == []
        await s.cluster.admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "payload"}}, "runtime-reconciler")
        await heals(s, "ServiceAccountMissing")
        await s.ready()

    drive(main)


def test_a_right_taken_away_from_a_settled_cluster_changes_no_node(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple())
        await s.ready()
        await s.says("Available", "True", "AllNodesReady")
        before = s.touches()
        rights = s.cluster.server.knobs.rights
        rights.take("controller", "watch", "nodes")
        s.cluster.server.break_watches()
        assert 'cannot watch resource "nodes"' in await s.says("Degraded", "True", "Forbidden")
        rights.give("controller", "watch", "nodes")
        await heals(s, "Forbidden")
        assert s.touches() == before

    drive(main)


def test_without_the_right_to_write_a_status_nothing_is_done_and_nothing_loops(drive: Drive) -> None:
    async def main(s: Any) -> None:
        rights = s.cluster.server.knobs.rights
        rights.take("controller", "patch", "noderuntimes/status")
        await s.create(simple())
        await asyncio.sleep(60)
        s.cluster.server.audit.clear()
        await asyncio.sleep(300)
        assert 0 < refusals(s) <= 2 * 300 / 15
        assert s.status() == {}
        assert s.touches() == []
        rights.give("controller", "patch", "noderuntimes/status")
        await s.ready(limit=200)

    drive(main)


def refusals(s: Any) -> int:
    return sum(1 for a in s.cluster.server.audit if a.user.startswith("controller") and a.status == 403)


def writes_besides(s: Any) -> int:
    """Writes of the controller that were done, rehearsals, Leases and Events apart."""
    return sum(
        1
        for a in s.cluster.server.audit
        if a.user.startswith("controller")
        and a.method not in ("GET", "WATCH")
        and a.target.kind.plural not in ("leases", "events")
        and a.status < 400
        and not a.rehearsed
    )


# --- a node without an agent ---


def test_a_node_without_an_agent_pod_is_told_and_the_others_go_on(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.cluster.nodes["node-2"].withdraw_agent()
        await s.create(simple())
        message = await s.says("Degraded", "True", "AgentMissing")
        assert message == (
            "node-2: no agent pod on this node; see the agent DaemonSet (more: `kubectl reconciler explain node-2`)"
        )
        await s.until(lambda: s.events("AgentMissing") == [("Warning", message)])
        await s.until(lambda: s.stages() == {"node-1": "ready", "node-2": "absent"})
        assert not [line for line in s.touches() if line == "PATCH nodes node-2"]
        s.cluster.nodes["node-2"].release_agent()
        await s.ready()
        await heals(s, "AgentMissing")

    drive(main)


def test_a_node_whose_agent_is_not_ready_is_told_with_the_name_of_its_pod(drive: Drive) -> None:
    async def main(s: Any) -> None:
        s.cluster.nodes["node-2"].hold_agent()
        await s.create(simple())
        message = await s.says("Degraded", "True", "AgentMissing")
        assert message == (
            "node-2: agent pod runtime-reconciler/reconciler-agent-node-2 is not Ready; see its log "
            "(more: `kubectl reconciler explain node-2`)"
        )
        s.cluster.nodes["node-2"].release_agent()
        await s.ready()
        await heals(s, "AgentMissing")

    drive(main)


def test_a_node_that_joins_is_given_a_minute_for_its_agent(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple())
        await s.ready()
        s.cluster.add_node("node-3").hold_agent()
        await asyncio.sleep(50)
        assert s.condition("Degraded")["status"] == "False"
        s.cluster.nodes["node-3"].release_agent()
        await s.ready()
        assert s.events("AgentMissing") == []
        assert s.cluster.server.store.get(kinds.NODES, ("", "node-3")) is not None

    drive(main)


def test_a_node_whose_state_somebody_garbled_is_stuck_and_not_ready_until_it_is_put_right(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest())
        await s.ready()
        key = names.state_annotation(RUNTIME)
        good = s.node("node-1")["metadata"]["annotations"][key]
        await s.cluster.admin.patch(NODES, "node-1", {"metadata": {"annotations": {key: "{"}}})
        message = await s.says("Stuck", "True", "StateUnreadable")
        assert message.startswith(f"1 node stuck; node-1: annotation {key} cannot be read (more: ")
        await s.says("Available", "False", "NotAllNodesReady")
        assert (s.status()["nodes"]["ready"], s.status()["nodes"]["total"]) == (1, 2)
        await s.cluster.admin.patch(NODES, "node-1", {"metadata": {"annotations": {key: good}}})
        await s.says("Available", "True", "AllNodesReady")
        await s.says("Stuck", "False", "AsExpected")
        await s.delete()
        await s.gone()

    drive(main)
