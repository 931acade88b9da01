"""Install the product as the README tells a user: its image on the nodes, then `kubectl apply -k`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import api as names
from tests.cluster import paths, productimage
from tests.cluster.api import Api
from tests.cluster.cluster import kubectl, nodes
from tests.cluster.command import wait_until
from tests.cluster.node import Node

_OURS = "runtime-reconciler.io/component%20in%20(agent,controller)"
MANIFESTS = paths.PROJECT / "deploy" / "base"


def install() -> None:
    """Applied, rolled out, and of this tree's sources; returns when all of its pods are ready."""
    made = archive()
    fresh = [node for node in nodes() if not (node.root / "var/lib" / f"{made.stem}.loaded").exists()]
    for node in nodes():
        productimage.load(made, node)
    kubectl("apply", "-k", str(MANIFESTS), timeout=60)
    if fresh:
        kubectl("-n", names.NAMESPACE, "delete", "pods", "--all", "--wait=false")
    wait_ready()


def wait_ready(image: str = "") -> None:
    """All pods of ours are ready; with `image` all of them run that one. Raises TimeoutError."""

    def ready() -> bool:
        pods = ready_pods()
        images = {pod["spec"]["containers"][0]["image"] for pod in pods}
        return len(pods) == 2 + len(nodes()) and images <= ({image} if image else images)

    wait_until(ready, 120, every=0.5, what=f"controller and agents ready {image}".strip())


def archive() -> Path:
    """The product's image as an archive, built when the sources have changed."""
    return productimage.build(image())


def remove() -> None:
    """Taken away again; NodeRuntimes must be gone before."""
    kubectl("delete", "-k", str(MANIFESTS), "--ignore-not-found", "--wait=true", timeout=180)


def ready_pods(component: str = "") -> list[names.Object]:
    """Pods of the controller and the agent that are ready and stay."""
    selector = "in%20(agent,controller)" if not component else f"in%20({component})"
    path = f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/component%20{selector}"
    return [pod for pod in Api("observer").items(path) if _ready(pod)]


def agent_pod(node: Node) -> names.Object:
    """The agent's pod on `node`. Raises LookupError when it is not ready."""
    for pod in ready_pods("agent"):
        if pod["spec"]["nodeName"] == node.name:
            return pod
    raise LookupError(f"no ready agent on {node.name}")


def refresh() -> None:
    """All ready, none in the back-off of a container that was killed: such a pod is replaced."""
    for pod in Api("observer").items(f"{names.OUR_PODS}?labelSelector={_OURS}"):
        if any(status["restartCount"] for status in pod.get("status", {}).get("containerStatuses", [])):
            Api("admin").delete(f"{names.OUR_PODS}/{pod['metadata']['name']}")
    wait_until(_fresh, 120, every=0.2, what="all pods of ours ready")


def _fresh() -> bool:
    found = Api("observer").items(f"{names.OUR_PODS}?labelSelector={_OURS}")
    return len(found) == 2 + len(nodes()) and all(_ready(pod) for pod in found)


@contextmanager
def no_agents() -> Iterator[None]:
    """As if there were none: for what kubelet does alone. They are back and ready afterwards."""
    path = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/daemonsets/agent"
    Api("admin").patch(path, _selects({"example.com/nowhere": "yes"}))
    try:
        wait_until(lambda: not _agents(), 60, every=0.2, what="the agents gone")
        yield
    finally:
        Api("admin").patch(path, _selects(None))
        wait_until(lambda: _whole("agent", len(nodes())), 120, every=0.2, what="the agents back")


@contextmanager
def no_controllers() -> Iterator[None]:
    """NodeRuntimes are nothing but objects of the API; the controllers are back and ready afterwards."""
    path = f"/apis/apps/v1/namespaces/{names.NAMESPACE}/deployments/controller"
    replicas = Api("observer").get(path)["spec"]["replicas"]
    Api("admin").patch(path, {"spec": {"replicas": 0}})
    try:
        wait_until(lambda: not ready_pods("controller"), 60, every=0.2, what="the controllers gone")
        yield
    finally:
        Api("admin").patch(path, {"spec": {"replicas": replicas}})
        wait_until(lambda: _whole("controller", replicas), 120, every=0.2, what="the controllers back")


def _selects(labels: dict[str, str] | None) -> names.Object:
    return {"spec": {"template": {"spec": {"nodeSelector": labels}}}}


def _agents() -> list[names.Object]:
    return _pods("agent")


def _pods(component: str) -> list[names.Object]:
    return Api("observer").items(f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/component%3D{component}")


def _whole(component: str, count: int) -> bool:
    found = _pods(component)
    return len(found) == count and all(_ready(pod) for pod in found)


def lease() -> tuple[str, str]:
    """Holder of the controller's Lease, and when it was renewed last (RFC 3339)."""
    spec = (Api("observer").find(f"{names.LEASES}/runtime-reconciler-controller") or {"spec": {}})["spec"]
    return spec.get("holderIdentity") or "", spec.get("renewTime") or ""


def leader() -> names.Object:
    """The pod that holds the controller's Lease. Raises LookupError when nobody does."""
    holder = (Api("observer").find(f"{names.LEASES}/runtime-reconciler-controller") or {"spec": {}})["spec"]
    identity = holder.get("holderIdentity") or ""
    for pod in Api("observer").items(f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/component%3Dcontroller"):
        if identity.startswith(pod["metadata"]["name"]):
            return pod
    raise LookupError(f"the Lease's holder is {identity!r}, which is no pod of the controller")


def _ready(pod: names.Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def image() -> str:
    """Of this tree's manifests."""
    text = (MANIFESTS / "agent.yaml").read_text()
    found = re.search(r"^\s*image: (\S+)$", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"no image in {MANIFESTS / 'agent.yaml'}")
    return found[1]
