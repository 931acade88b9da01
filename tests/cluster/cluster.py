"""The whole cluster: up and down, both idempotent."""

from __future__ import annotations

import json
import shutil
import time

from tests.cluster import binaries, controlplane, images, noderoot, packages, paths
from tests.cluster.command import run, wait_until
from tests.cluster.node import Node

_OBSERVER_RIGHTS = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "observer"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "observer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "observer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "observers"}],
    },
]


def nodes() -> list[Node]:
    return [Node(index) for index in range(len(controlplane.NODE_NAMES))]


def kubectl(*argv: str, stdin: object = None, timeout: float = 60.0, check: bool = True) -> str:
    """Output of kubectl as the cluster's administrator; `stdin` is text, or objects to be sent as JSON."""
    if stdin is not None and not isinstance(stdin, str):
        stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": stdin} if isinstance(stdin, list) else stdin)
    config = f"--kubeconfig={controlplane.kubeconfig('admin')}"
    return run([paths.KUBECTL, config, *argv], stdin=stdin, timeout=timeout, check=check)


def up() -> None:
    """A cluster of two Ready nodes. What is there and runs is kept; what is missing is made."""
    packages.ensure()
    binaries.ensure()
    root = noderoot.node_root()
    began = time.monotonic()
    controlplane.start()
    kubectl("apply", "-f", "-", stdin=_OBSERVER_RIGHTS)
    archives = paths.RUN / "images"
    if not archives.exists():
        images.write_all(archives, root)
    for node in nodes():
        node.prepare(root, archives)
        node.start()
    for node in nodes():
        wait_until(lambda node=node: ready(node), 90, every=0.5, what=f"{node.name} Ready")
    wait_until(_service_account, 30, what="the default service account")
    print(f"two nodes Ready after {time.monotonic() - began:.0f} s", flush=True)


def down() -> None:
    """Everything off and gone, the caches kept."""
    for node in nodes():
        node.destroy()
    controlplane.stop()
    for leftover in ("etcd-data", "nodes", "images", "pki", "previous"):
        shutil.rmtree(paths.RUN / leftover, ignore_errors=True)
    for file in paths.RUN.glob("*"):
        if file.is_file():
            file.unlink()


def ready(node: Node) -> bool:
    """Whether the API server holds the node to be Ready."""
    path = '-ojsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return kubectl("get", "node", node.name, path, check=False).strip() == "True"


def _service_account() -> bool:
    return kubectl("get", "serviceaccount", "default", "-oname", check=False) != ""
