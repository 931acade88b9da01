"""The hook of the chart with its own rights and arguments, against a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import base
from tests.chart.apiserver import ApiServer
from tests.cluster.release import CHART, helm

NS = "runtime-reconciler"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
KATA = {"apiVersion": "runtime-reconciler.io/v1alpha1", "kind": "NodeRuntime", "metadata": {"name": "kata"}, "spec": {}}
CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "ContainerdServing", "status": "True"}]
STOP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "runtime-reconciler-stop"},
    "data": {"by": "alice", "at": "2026-01-02T03:04:05Z"},
}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "runtime-reconciler-controller"}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        helm("install", "rr", str(CHART), "--namespace=kube-system", config=server.config)
        for one in (LEASE, STOP):
            server.kubectl("create", "-n", NS, "-f", "-", stdin=json.dumps(one))
        create(server, NODE)
        server.kubectl("annotate", "node", "node-1", "agent.runtime-reconciler.io/report={}", "example.com/a=b")
        status = json.dumps({"status": {"conditions": CONDITIONS}})
        server.kubectl("patch", "node", "node-1", "--subresource=status", "--patch", status)
        yield server


def create(api: ApiServer, body: dict[str, Any]) -> None:
    api.kubectl("create", "-f", "-", stdin=json.dumps(body))


def hook(api: ApiServer, folder: Path, *values: str) -> subprocess.CompletedProcess[str]:
    """What the Job of the chart runs, as its ServiceAccount."""
    documents = [one for one in yaml.safe_load_all(base.template(*values)) if "teardown" in one["metadata"]["name"]]
    (job,) = [one for one in documents if one["kind"] == "Job"]
    for one in documents:
        if one is not job:
            api.kubectl("apply", "-f", "-", stdin=json.dumps(one))
    config = json.loads(api.config.read_text())
    config["users"][0]["user"] = {"token": api.kubectl("create", "token", "teardown", "-n", NS).strip()}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = [*container["command"][1:], *container["args"], "--kubeconfig", str(path)]
    return subprocess.run(
        [sys.executable, "-m", "reconciler", *words], capture_output=True, text=True, timeout=120, check=False
    )


def test_its_rights_are_enough_and_it_changes_nothing_before_it_may(api: ApiServer, tmp_path: Path) -> None:
    create(api, KATA)
    refused = hook(api, tmp_path)
    assert (refused.returncode, refused.stderr.splitlines()[-1].partition(". ")[0]) == (
        1,
        "reconciler: still wanted: NodeRuntime kata",
    )
    assert {"daemonset.apps/agent", "deployment.apps/controller"} <= api.names("daemonsets", "deployments")

    ended = hook(api, tmp_path, "--set=uninstall.deleteNodeRuntimes=true")
    assert (ended.returncode, ended.stderr.splitlines()) == (
        0,
        [
            "NodeRuntime kata is deleted",
            "waiting for kata; everything is stopped by alice since 2026-01-02T03:04:05Z: `reconciler resume` lets the "
            "deletion go on",
            "no NodeRuntime is left",
            "agents and controller have ended",
            "condition and report taken off 1 of 1 nodes",
        ],
    )
    assert api.names("noderuntimes", "daemonsets", "deployments") == set()
    left = api.names("leases", "configmaps")
    assert not left & {"lease.coordination.k8s.io/runtime-reconciler-controller", "configmap/runtime-reconciler-stop"}
    node = json.loads(api.kubectl("get", "node", "node-1", "-ojson"))
    assert node["metadata"]["annotations"] == {"example.com/a": "b"}
    assert [one["type"] for one in node["status"]["conditions"]] == ["Ready"]
