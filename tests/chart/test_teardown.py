"""`helm uninstall` with its hook, run with its own rights and arguments, against a real API server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.apiserver import ApiServer
from tests.cluster.command import CommandFailed
from tests.cluster.release import CHART, helm

NS = "runtime-reconciler"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
KATA = {
    "apiVersion": "runtime-reconciler.io/v1alpha1",
    "kind": "NodeRuntime",
    "metadata": {"name": "kata", "finalizers": ["runtime-reconciler.io/nodes"]},
    "spec": {},
}
CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "ContainerdServing", "status": "True"}]
STOP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "runtime-reconciler-stop"},
    "data": {"by": "alice", "at": "2026-01-02T03:04:05Z"},
}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "runtime-reconciler-controller"}}


LEFT_ALONE = ("clusterroles", "clusterrolebindings", "crds", "validatingadmissionpolicies", "nodes")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as server:
        yield server


def create(api: ApiServer, body: dict[str, Any], namespace: str = "") -> None:
    where = [f"--namespace={namespace}"] if namespace else []
    api.kubectl("create", *where, "-f", "-", stdin=json.dumps(body))


def release(api: ApiServer, verb: str, *argv: str) -> None:
    chart = [str(CHART)] if verb in ("install", "upgrade") else []
    helm(verb, "rr", *chart, "--namespace=kube-system", *argv, config=api.config, timeout=120)


class Jobs(threading.Thread):
    """What kubelet and the Job controller do for the one Job of the chart; and the controller's part in a deletion."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        super().__init__()
        self.said: list[list[str]] = []
        """Lines of each Job."""
        self._api = api
        self._kubeconfig = folder / "teardown.kubeconfig"
        self._ended = threading.Event()
        self._done: set[str] = set()

    def __enter__(self) -> Jobs:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            text = self._api.kubectl("get", "job", "teardown", f"--namespace={NS}", "-ojson", check=False)
            if text and json.loads(text)["metadata"]["uid"] not in self._done:
                self._run(json.loads(text))

    def _run(self, job: dict[str, Any]) -> None:
        self._done.add(job["metadata"]["uid"])
        config = json.loads(self._api.config.read_text())
        config["users"][0]["user"] = {"token": self._api.kubectl("create", "token", "teardown", "-n", NS).strip()}
        self._kubeconfig.write_text(json.dumps(config))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        words = [*container["command"][1:], *container["args"], "--kubeconfig", str(self._kubeconfig)]
        argv = [sys.executable, "-m", "reconciler", *words]
        lines: list[str] = []
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line.rstrip())
                if line.startswith("waiting for kata"):
                    gone = json.dumps({"metadata": {"finalizers": None}})
                    self._api.kubectl("patch", "noderuntime", "kata", "--type=merge", "--patch", gone)
        self.said.append(lines)
        self._tell(process.returncode == 0)

    def _tell(self, succeeded: bool) -> None:
        now = "2026-01-02T03:04:05Z"
        kinds = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now, "reason": "Test"} for kind in kinds]
        status: dict[str, Any] = {"startTime": now, "conditions": conditions}
        status |= {"succeeded": 1, "completionTime": now} if succeeded else {"failed": 1}
        patch = ["--subresource=status", "--type=merge", "--patch", json.dumps({"status": status})]
        self._api.kubectl("patch", "job", "teardown", f"--namespace={NS}", *patch)


def test_refused_then_kept_then_it_waits_and_nothing_is_left(api: ApiServer, tmp_path: Path) -> None:
    create(api, NODE)
    api.kubectl("annotate", "node", "node-1", "agent.runtime-reconciler.io/report={}", "example.com/a=b")
    status = json.dumps({"status": {"conditions": CONDITIONS}})
    api.kubectl("patch", "node", "node-1", "--subresource=status", "--patch", status)
    before = api.names(*LEFT_ALONE)
    release(api, "install")
    create(api, LEASE, NS)
    create(api, STOP, NS)
    create(api, KATA)
    workloads = {"daemonset.apps/agent", "deployment.apps/controller"}

    with Jobs(api, tmp_path) as jobs:
        with pytest.raises(CommandFailed):
            release(api, "uninstall", "--timeout=60s")
        ((refusal,),) = jobs.said
        assert refusal.startswith("reconciler: still wanted: NodeRuntime kata. ")
        assert refusal.endswith("To keep the product: helm rollback rr 1 --namespace kube-system")
        assert workloads <= api.names("daemonsets", "deployments")
        assert not {name for name in api.names("clusterroles", "serviceaccounts") if "teardown" in name}

        release(api, "rollback", "1")
        api.kubectl("delete", "noderuntime", "kata", "--wait=false")
        release(api, "uninstall", "--timeout=60s")
    assert jobs.said[1:] == [
        [
            "waiting for kata; everything is stopped by alice since 2026-01-02T03:04:05Z: `kubectl reconciler resume` "
            "lets the deletion go on",
            "no NodeRuntime is left",
            "agents and controller have ended",
            "conditions and report taken off 1 of 1 nodes",
        ]
    ]
    api.kubectl("wait", "--for=delete", "crd", "noderuntimes.runtime-reconciler.io", "--timeout=30s")
    assert api.names(*LEFT_ALONE) == before
    assert not api.names("daemonsets", "deployments", "jobs", "poddisruptionbudgets")
    left = api.names("leases", "configmaps")
    assert not left & {"lease.coordination.k8s.io/runtime-reconciler-controller", "configmap/runtime-reconciler-stop"}
    node = json.loads(api.kubectl("get", "node", "node-1", "-ojson"))
    assert node["metadata"]["annotations"] == {"example.com/a": "b"}
    assert [one["type"] for one in node["status"]["conditions"]] == ["Ready"]


def test_asked_to_it_deletes_them(api: ApiServer, tmp_path: Path) -> None:
    release(api, "install")
    create(api, KATA)
    release(api, "upgrade", "--set=uninstall.deleteNodeRuntimes=true")
    with Jobs(api, tmp_path) as jobs:
        release(api, "uninstall", "--timeout=60s")
    (lines,) = jobs.said
    assert lines[:3] == ["NodeRuntime kata is deleted", "waiting for kata", "no NodeRuntime is left"]
