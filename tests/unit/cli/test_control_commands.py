"""pause, resume, stop, retry and skip: what they change, what they say, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from reconciler.api import names
from reconciler.api.meta import ConfigMap, Node
from reconciler.api.node import Problem, Stage
from reconciler.api.noderuntime import NodeRuntime
from reconciler.cli import connection, skip, stop
from reconciler.kube.client import Client
from reconciler.kube.errors import Conflict, NotFound
from reconciler.kube.resources import CONFIGMAPS, NODERUNTIMES, NODES
from tests.unit.cli.test_status_and_explain import Cluster

NS = names.NAMESPACE
WHERE = f"ConfigMap {NS}/{names.STOP_NAME}"


@pytest.fixture(autouse=True)
def who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "_user", lambda: "ann")
    monkeypatch.setattr(stop.socket, "gethostname", lambda: "desk")


@pytest.fixture
def fleet(served: Any) -> Iterator[Any]:
    """node-1 is ready, node-2 at work, node-3 given up on, node-4 stuck: its deadline was months ago."""

    async def make(client: Client) -> None:
        cluster = Cluster(client)
        await cluster.runtime()
        await cluster.node("node-1", Stage.READY, installed=cluster.revision)
        await cluster.node("node-2", Stage.READY, installed=cluster.revision)
        error = Problem("PayloadFailed", "exit code 3")
        await cluster.node("node-3", Stage.FAILED, target="", failed=cluster.revision, error=error)
        await cluster.node("node-4", Stage.CONFIGURE)
        await cluster.leader(datetime.now(UTC))

    served.ask(make)
    yield served


def found(served: Any) -> ConfigMap | None:
    async def get(client: Client) -> ConfigMap | None:
        try:
            return await client.get(CONFIGMAPS, names.STOP_NAME, NS)
        except NotFound:
            return None

    result: ConfigMap | None = served.ask(get)
    return result


def node(served: Any, name: str) -> Node:
    result: Node = served.ask(lambda client: client.get(NODES, name))
    return result


def runtime(served: Any) -> NodeRuntime:
    result: NodeRuntime = served.ask(lambda client: client.get(NODERUNTIMES, "kata"))
    return result


def writes(served: Any) -> list[tuple[str, str]]:
    """Of the command, whose user in the kubeconfig is `admin`, rehearsals left out."""
    done = (a for a in served.server.audit if a.method not in ("GET", "WATCH") and not a.rehearsed)
    return [(a.method, a.target.kind.plural) for a in done]


def deleting(served: Any) -> None:
    async def ask(client: Client) -> None:
        await client.patch(NODERUNTIMES, "kata", {"metadata": {"finalizers": [names.FINALIZER]}})
        await client.delete(NODERUNTIMES, "kata")

    served.ask(ask)


# --- stop and resume ---


def test_stop_is_one_write_that_says_who_and_why_and_tells_what_still_ends(fleet: Any) -> None:
    before = len(writes(fleet))
    ended = fleet.run("stop", "--reason", "bad image")
    assert ended.exit_code == 0, ended.output
    made = found(fleet)
    assert made is not None
    assert (made.data["reason"], made.data["by"]) == ("bad image", "ann@desk")
    assert writes(fleet)[before:] == [("POST", "configmaps")]
    assert ended.stdout == (
        f"everything is stopped by ann@desk since {made.data['at']}: bad image ({WHERE})\n"
        "  nothing new begins within 1 s; an agent that cannot reach the API server begins nothing either\n"
        "  what has begun ends, on node-4 (kata: configure)\n"
        "  `kubectl reconciler resume` lifts it\n"
    )


def test_stop_where_everything_is_stopped_leaves_the_first_words(fleet: Any) -> None:
    fleet.run("stop", "--reason", "first")
    first = found(fleet)
    ended = fleet.run("stop", "--reason", "second")
    assert first is not None
    assert (ended.exit_code, found(fleet)) == (0, first)
    assert ended.stdout == f"unchanged: everything is stopped by ann@desk since {first.data['at']}: first ({WHERE})\n"


def test_a_stop_in_a_namespace_without_a_controller_says_so(fleet: Any) -> None:
    ended = fleet.run("stop", "--namespace", "other")
    nobody = "no controller has led yet: Lease other/runtime-reconciler-controller is not there"
    assert f"  {nobody}; is other the right --namespace?\n" in ended.stdout


def test_a_stop_that_may_not_be_written_is_refused(fleet: Any) -> None:
    fleet.server.knobs.rights.take("admin", "create", "configmaps")
    ended = fleet.run("stop")
    assert (ended.exit_code, found(fleet)) == (1, None)
    assert ended.stderr.startswith("reconciler: the API server refused: configmaps is forbidden")


def test_a_rehearsed_stop_and_resume_change_nothing(fleet: Any) -> None:
    ended = fleet.run("stop", "--dry-run")
    assert (ended.exit_code, found(fleet)) == (0, None)
    assert ended.stdout.startswith("would change: everything is stopped by ann@desk")
    assert ended.stdout.endswith("nothing was changed (--dry-run)\n")
    fleet.run("stop")
    assert fleet.run("resume", "--dry-run").exit_code == 0
    assert found(fleet) is not None


def test_resume_lifts_the_stop_and_names_what_is_still_paused(fleet: Any) -> None:
    fleet.run("stop")
    fleet.run("pause", "kata")
    ended = fleet.run("resume")
    assert (ended.exit_code, found(fleet)) == (0, None)
    assert ended.stdout.startswith("nothing is stopped any more; before, everything is stopped by ann@desk since ")
    assert "  still paused: kata; `kubectl reconciler resume RUNTIME` ends that\n" in ended.stdout


def test_resume_where_nothing_is_stopped_changes_nothing(fleet: Any) -> None:
    ended = fleet.run("resume")
    assert (ended.exit_code, ended.stdout) == (0, f"unchanged: nothing is stopped (no {WHERE})\n")


def test_resume_does_not_lift_a_stop_that_was_made_meanwhile(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.run("stop")

    async def refused(*arguments: object, **options: object) -> None:
        assert options["uid"]
        raise Conflict(409, "Conflict", "Precondition failed: UID")

    monkeypatch.setattr(Client, "delete", refused)
    ended = fleet.run("resume")
    assert (ended.exit_code, found(fleet) is None) == (1, False)
    assert ended.stderr == (
        "reconciler: not lifted: somebody has stopped everything anew meanwhile; see `kubectl reconciler status`\n"
    )


def test_status_and_explain_tell_of_the_stop_and_of_its_end(fleet: Any) -> None:
    fleet.ask(lambda client: client.create(NODES, {"metadata": {"name": "node-5"}}))
    fleet.run("stop", "--reason", "bad image")
    told = "everything is stopped by ann@desk: bad image; `kubectl reconciler resume` ends it\n"
    assert fleet.run("status").stdout.startswith(told)
    assert "everything is stopped" in fleet.run("explain", "node-3").stdout
    fleet.run("resume")
    assert "stopped" not in fleet.run("status").stdout


# --- pause and resume of one ---


def test_pause_and_resume_of_a_runtime(fleet: Any) -> None:
    ended = fleet.run("pause", "kata")
    assert (ended.exit_code, runtime(fleet).spec.paused) == (0, True)
    assert ended.stdout == (
        "NodeRuntime kata is paused\n"
        "  no further node begins\n"
        "  what has begun goes on to its end, on node-4 (kata: configure)\n"
        "  `kubectl reconciler resume kata` ends it\n"
    )
    assert fleet.run("pause", "kata").stdout == "unchanged: NodeRuntime kata is paused\n"
    ended = fleet.run("resume", "kata")
    assert (ended.exit_code, runtime(fleet).spec.paused) == (0, False)
    assert ended.stdout == "NodeRuntime kata is not paused any more\n  its rollout goes on\n"
    assert fleet.run("resume", "kata").stdout == "unchanged: NodeRuntime kata is not paused\n"


def test_pause_of_one_that_is_not_there_names_those_that_are(fleet: Any) -> None:
    ended = fleet.run("pause", "gvisor")
    assert (ended.exit_code, ended.stderr) == (1, "reconciler: NodeRuntime gvisor is not there; there is kata\n")


def test_a_resumed_runtime_is_still_held_by_a_stop(fleet: Any) -> None:
    fleet.run("pause", "kata")
    fleet.run("stop")
    ended = fleet.run("resume", "kata")
    assert ended.stdout.endswith(": nothing of it begins before `kubectl reconciler resume`\n")
    assert found(fleet) is not None


# --- retry ---


@pytest.mark.parametrize(
    ("name", "changed", "following"),
    [
        (
            "node-3",
            "kata is tried again: failed in failed: PayloadFailed: exit code 3",
            "kata: the install begins anew when its turn comes (a slot of rollout.maxUnavailable)",
        ),
        (
            "node-4",
            "kata is tried again: stuck in configure: WaitingForAgent: waits for the agent's report on configure",
            "kata: attempt 2 of configure begins",
        ),
    ],
)
def test_retry_asks_for_another_try_of_what_is_failed_or_stuck(
    fleet: Any, name: str, changed: str, following: str
) -> None:
    ended = fleet.run("retry", name)
    assert ended.exit_code == 0, ended.output
    assert node(fleet, name).metadata.annotations[names.retry_annotation("kata")] == "true"
    assert ended.stdout == f"node {name}: {changed}\n  {following}\n"
    before = len(writes(fleet))
    again = fleet.run("retry", name)
    assert (again.exit_code, len(writes(fleet))) == (0, before)
    assert again.stdout.startswith(f"unchanged: node {name}: kata is to be tried again: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("node-1",), "node node-1: nothing to try again: kata is ready (ok); see `kubectl reconciler explain node-1`"),
        (("node-3", "--runtime", "gvisor"), "node node-3: nothing to try again: NodeRuntime gvisor is not on it"),
        (("node-9",), "node node-9 is not there; see `kubectl get nodes`"),
    ],
)
def test_retry_refuses_where_there_is_nothing_to_try_again(fleet: Any, arguments: tuple[str, ...], told: str) -> None:
    before = len(writes(fleet))
    ended = fleet.run("retry", *arguments)
    assert (ended.exit_code, ended.stderr) == (1, f"reconciler: {told}\n")
    assert len(writes(fleet)) == before


def test_a_rehearsed_retry_changes_nothing(fleet: Any) -> None:
    assert fleet.run("retry", "node-3", "--dry-run").exit_code == 0
    assert names.retry_annotation("kata") not in node(fleet, "node-3").metadata.annotations


# --- skip ---


def test_skip_says_what_it_means_and_gives_the_node_up(fleet: Any) -> None:
    deleting(fleet)
    ended = fleet.run("skip", "node-2", "--yes")
    assert ended.exit_code == 0, ended.output
    assert node(fleet, "node-2").metadata.annotations[names.skip_annotation("kata")] == "true"
    assert ended.stdout == "".join(
        f"{line}\n" for line in ("node node-2 is skipped by the deletion of kata", *(f"  {m}" for m in skip.MEANING))
    )
    assert fleet.run("skip", "node-2", "--yes").stdout.startswith("unchanged: node node-2 is skipped")


def test_skip_asks_on_a_terminal(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deleting(fleet)
    monkeypatch.setattr(skip, "_terminal", lambda: True)
    no = fleet.run("skip", "node-2", answer="n\n")
    assert (no.exit_code, names.skip_annotation("kata") in node(fleet, "node-2").metadata.annotations) == (1, False)
    assert f"  {skip.MEANING[1]}\n" in no.stderr
    assert fleet.run("skip", "node-2", answer="y\n").exit_code == 0
    assert names.skip_annotation("kata") in node(fleet, "node-2").metadata.annotations


def test_where_nobody_can_be_asked_skip_needs_yes(fleet: Any) -> None:
    deleting(fleet)
    ended = fleet.run("skip", "node-2")
    assert ended.exit_code == 2
    assert "give --yes" in ended.stderr
    assert names.skip_annotation("kata") not in node(fleet, "node-2").metadata.annotations


def test_skip_refuses_where_no_deletion_waits(fleet: Any) -> None:
    ended = fleet.run("skip", "node-2", "--yes")
    assert (ended.exit_code, ended.stderr) == (
        1,
        "reconciler: no deletion waits for node node-2: no NodeRuntime is being deleted\n",
    )
    deleting(fleet)
    fleet.ask(lambda client: client.create(NODES, {"metadata": {"name": "bare"}}))
    ended = fleet.run("skip", "bare", "--yes")
    assert ended.stderr == "reconciler: no deletion waits for node bare: nothing of kata is on it\n"


# --- all of them ---


def test_programs_get_one_document(fleet: Any) -> None:
    document = json.loads(fleet.run("pause", "kata", "-o", "json").stdout)
    assert document == {
        "command": "pause",
        "changed": ["NodeRuntime kata is paused"],
        "unchanged": [],
        "next": [
            "no further node begins",
            "what has begun goes on to its end, on node-4 (kata: configure)",
            "`kubectl reconciler resume kata` ends it",
        ],
        "dryRun": False,
    }


@pytest.mark.parametrize("command", [("pause", "kata"), ("resume",), ("stop",), ("retry", "a"), ("skip", "a", "--yes")])
def test_without_a_cluster_each_is_one_line_and_2(served: Any, command: tuple[str, ...]) -> None:
    ended = served.run(*command, "--context", "nowhere")
    assert (ended.exit_code, ended.stderr.count("\n")) == (connection.NO_CLUSTER, 1)
