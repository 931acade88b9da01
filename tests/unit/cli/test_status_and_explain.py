"""`status` and `explain` over the lists of an API server: what a person reads, what a program gets, how they exit."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from reconciler.api import names
from reconciler.api.node import Problem, Stage
from reconciler.cli import explain, output, status
from reconciler.cli.snapshot import listed, node_of, read
from reconciler.controller.explanation import explain as explained
from reconciler.kube.client import Client
from reconciler.kube.resources import NODERUNTIMES, NODES, PODS, RUNTIMECLASSES
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from tests.unit.cli.lab import CLUSTER, NOW, NS, T0, Cluster, stuck, well, working


def test_a_stuck_node_is_explained(served: Any) -> None:
    served.ask(stuck)
    world = served.ask(lambda admin: listed(admin, NS))
    found = explained(world, read(world, NOW), node_of(world, "node-2"), NOW)
    pod = found.pods[0].name
    assert (
        explain.text(found)
        == f"""\
node-2, kata: stuck in install
Stage:      install, attempt 1, since 2026-01-02 03:04:05 UTC (12m)
Waits for:  that pod {pod} starts
Last seen:  pod {pod}, made at 2026-01-02 03:16:05 UTC, has not started: ImagePullFailed: not found
Next:       the payload runs, then configure if the signal still comes; the time for it was over at \
2026-01-02 03:05:05 UTC
Do:         correct the image or its tag, spec.imagePullSecrets or the registry; \
`kubectl -n runtime-reconciler describe pod {pod}` says more; \
it goes on by itself then, or `kubectl reconciler retry node-2`
Error:      ImagePullFailed: not found
Revision:   {found.runtimes[0].revision}
Pod:        {pod} (install, attempt 1): pending: ImagePullFailed: not found

Node node-2
Ready:      True since 2026-01-02 02:04:05 UTC: KubeletReady
Serving:    True since 2026-01-02 02:04:05 UTC: Serving: CRI answers Version and Status
Reported:   containerd 1.7.3 with handlers runc
Agent:      runtime-reconciler/agent-node-2 is Ready
"""
    )


def test_the_table_has_the_troubled_nodes_first(served: Any) -> None:
    served.ask(stuck)
    world = served.ask(lambda admin: listed(admin, NS))
    whole = read(world, NOW)
    pod = next(row for row in whole.nodes if row.node == "node-2").waits_for
    assert (
        status.text(whole, "kata")
        == f"""\
RUNTIME  READY  UPDATING  STUCK  FAILED  ASIDE  REVISION  STATE
kata     1/3    1         1      0       1      -         halted: more nodes are failed or stuck than \
rollout.errorBudget allows; mend and retry them, or raise it

NODE    STAGE    STATE    SINCE  DEADLINE  ATTEMPT  BARRIER  WAITS FOR
node-2  install  stuck    12m    over      1        open     {pod} (ImagePullFailed)
node-3  absent   waiting  -      -         1        open     its turn: a slot of rollout.maxUnavailable
node-1  ready    ok       12m    -         1        open     nothing
node-5  absent   aside    -      -         1        open     nothing: it is set aside and not counted
"""
    )


@pytest.mark.parametrize(
    ("cluster", "code"), [(well, output.ALL_WELL), (working, output.IN_PROGRESS), (stuck, output.IN_TROUBLE)]
)
def test_the_exit_status_says_how_it_is(served: Any, cluster: Any, code: int) -> None:
    served.ask(cluster)
    assert served.run("status", *CLUSTER).exit_code == code
    assert served.run("status", "kata", "-o", "json", *CLUSTER).exit_code == code
    node = {output.ALL_WELL: "node-1", output.IN_PROGRESS: "node-1", output.IN_TROUBLE: "node-2"}[code]
    assert served.run("explain", node, *CLUSTER).exit_code == code


def test_an_empty_cluster_is_well(served: Any) -> None:
    ended = served.run("status", *CLUSTER)
    assert (ended.exit_code, ended.stdout) == (0, "no NodeRuntime in this cluster\n")


def test_json_and_yaml_are_the_read_model(served: Any) -> None:
    served.ask(stuck)
    answered = served.run("status", "kata", "--output", "json", *CLUSTER)
    whole = json.loads(answered.stdout)
    (runtime,) = whole["runtimes"]
    assert {k: runtime[k] for k in ("name", "total", "ready", "stuck", "setAside", "paused", "deleting")} == {
        "name": "kata",
        "total": 3,
        "ready": 1,
        "stuck": 1,
        "setAside": 1,
        "paused": False,
        "deleting": False,
    }
    rows = {row["node"]: row for row in whole["nodes"]}
    row = rows["node-2"]
    assert (row["verdict"], row["since"], row["deadline"]) == ("stuck", "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z")
    assert row["error"] == {"reason": "ImagePullFailed", "message": "not found"}
    assert list(rows) == ["node-1", "node-2", "node-3", "node-5"]
    as_yaml = yaml.safe_load(served.run("status", "kata", "-o", "yaml", *CLUSTER).stdout)
    assert as_yaml["nodes"] == whole["nodes"]
    found = json.loads(served.run("explain", "node-2", "-o", "json", *CLUSTER).stdout)
    assert found["runtimes"] == [row]
    assert found["serving"]["status"] == "True"


def test_a_node_that_was_given_up_on_says_why_and_how_it_is_tried_again(served: Any) -> None:
    async def failed(client: Client) -> str:
        it = Cluster(client)
        await it.runtime()
        error = Problem("PayloadFailed", "exit code 3: no space")
        await it.node("node-1", Stage.FAILED, target="", failed=it.revision, error=error)
        return it.revision

    revision = served.ask(failed)
    ended = served.run("explain", "node-1", *CLUSTER)
    lines = ended.stdout.splitlines()
    assert (ended.exit_code, lines[0]) == (4, "node-1, kata: failed")
    assert lines[2:6] == [
        "Waits for:  a new revision of the NodeRuntime, or a retry",
        f"Last seen:  revision {revision} was given up on: PayloadFailed: exit code 3: no space",
        "Next:       nothing until then",
        "Do:         read what the payload said, in its message and in its log; then `kubectl reconciler retry node-1`",
    ]


def test_a_configuration_that_is_contested_is_told_of_the_node(served: Any) -> None:
    served.ask(well)
    told = {
        "type": names.CONTESTED_CONDITION,
        "status": "True",
        "reason": "Contested",
        "message": "config.toml",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    patch = {"status": {"conditions": [told]}}
    served.ask(
        lambda admin: admin.patch(NODES, "node-1", patch, subresource="status", content_type=STRATEGIC_MERGE_PATCH)
    )
    lines = served.run("explain", "node-1", *CLUSTER).stdout.splitlines()
    assert "Contested:  True since 2026-01-02 03:04:05 UTC: Contested: config.toml" in lines


def test_a_node_that_no_noderuntime_selects_says_so(served: Any) -> None:
    served.ask(stuck)
    ended = served.run("explain", "node-4", *CLUSTER)
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[:2] == [
        "node-4: nothing of kata is to be on this node",
        "kata: spec.nodeSelector does not match: it wants pool=a",
    ]


def test_what_is_not_there_is_one_line_and_1(served: Any) -> None:
    served.ask(stuck)
    for arguments, told in (
        (("explain", "node-9"), "node node-9 is not there; see `kubectl get nodes`"),
        (("explain", "node-1", "--runtime", "other"), "NodeRuntime other is not there; there are: kata"),
        (("status", "other"), "NodeRuntime other is not there; there are: kata"),
    ):
        ended = served.run(*arguments, *CLUSTER)
        assert (ended.exit_code, ended.stdout, ended.stderr) == (1, "", f"reconciler: {told}\n")


def test_one_runtime_of_a_node_is_told_alone(served: Any) -> None:
    served.ask(stuck)
    told = served.run("explain", "node-2", "--runtime", "kata", *CLUSTER).stdout
    assert told.startswith("node-2, kata: stuck in install\n")


def test_a_controller_that_does_not_lead_is_told_on_stderr(served: Any) -> None:
    async def left(client: Client) -> None:
        it = Cluster(client)
        await it.runtime()
        await it.node("node-1")
        await it.leader(T0)

    ended = served.run("status", *CLUSTER)
    lease = f"Lease {NS}/{names.LEASE_NAME}"
    assert ended.stderr == f"reconciler: no controller has led yet: {lease} is not there\n"
    served.ask(left)
    ended = served.run("status", *CLUSTER)
    told = "reconciler: no controller leads: controller-1 renewed its Lease last at 2026-01-02T03:04:05.000000Z\n"
    assert ended.stderr == told


def test_the_pods_that_keep_a_runtime_are_asked_for(served: Any) -> None:
    async def used(client: Client) -> None:
        it = Cluster(client)
        made = await it.runtime()
        await it.node("node-1", Stage.READY, installed=it.revision, draining=True)
        meta = {"resourceVersion": made.metadata.resource_version, "finalizers": [names.FINALIZER]}
        await client.patch(NODERUNTIMES, "kata", {"metadata": meta})
        await client.delete(NODERUNTIMES, "kata")
        await client.create(RUNTIMECLASSES, {"metadata": {"name": "kata"}, "handler": "kata"})
        spec = {"nodeName": "node-1", "runtimeClassName": "kata", "containers": [{"name": "web", "image": "x"}]}
        await client.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        await client.patch(PODS, "web", {"status": {"phase": "Running"}}, "default", subresource="status")

    served.ask(used)
    lines = served.run("explain", "node-1", *CLUSTER).stdout.splitlines()
    assert lines[2:4] == [
        "Waits for:  that no running pod uses its handlers",
        "Last seen:  1 running pods use its handlers, e.g. default/web; end them, or set uninstall.whenInUse: Force",
    ]
