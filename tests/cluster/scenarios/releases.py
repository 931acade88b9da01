"""Scenario 13: Helm takes the previous release over, upgrades it, and uninstalls it, and no node notices."""

from __future__ import annotations

import re
import time

from tests.cluster import api as names
from tests.cluster import controlplane, previous, product, runtimes
from tests.cluster.cluster import kubectl
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict, identity
from tests.cluster.release import CHART, said

_RELEASE = ("runtime-reconciler", "--namespace=kube-system")
_TAKE_OVER = ("--take-ownership", "--force-conflicts")
"""What kubectl applied before: Helm would refuse to touch it."""
_PODS = "/api/v1/namespaces/default/pods"
_READY = 150.0
"""Seconds; how long an install takes is judged by scenario 1."""
_NEXT = "next"
"""A tag of this tree's image: an upgrade by which every pod is replaced."""
_OURS = (
    "/api/v1/namespaces",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/api/v1/namespaces/kube-system/secrets",
)


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    product.remove()
    release = previous.find()
    verdict.facts["upgraded from"] = release.described
    try:
        _taken_over_at_rest(lab, verdict, release)
        _uninstalled_while_it_waits(lab, verdict)
        _taken_over_in_a_rollout(lab, verdict, release)
        _refused(lab, verdict)
        _upgraded_and_asked_to_delete(lab, verdict)
    finally:
        kubectl("delete", "namespace", names.NAMESPACE, "--ignore-not-found", "--wait=true", timeout=180)
        product.install()


def _taken_over_at_rest(lab: Lab, verdict: Verdict, release: previous.Release) -> None:
    """From kubectl to Helm, from one release to the next: containerd and the users' pods go on as they were."""
    previous.install(release)
    product.wait_ready(previous.IMAGE)
    lab.create(runtimes.full())
    lab.wait_ready(_READY)
    lab.run_user_pods(verdict)
    pods = _identities(lab)
    began = time.time()
    verdict.measured("upgrade at rest: s", _helm(verdict, "upgrade", "--install", "--wait", *_TAKE_OVER))
    product.wait_ready(product.image())
    lab.wait_ready(_READY)
    time.sleep(5)
    for name, count in lab.restarts(began).items():
        verdict.check(count == 0, f"{name}: {count} starts of containerd for an upgrade at rest")
    verdict.check(_identities(lab) == pods, f"the users' pods are others: {pods} → {_identities(lab)}")
    verdict.check(lab.claims_ready(), f"after the upgrade: {(lab.runtime() or {}).get('status')}")
    lab.end_user_pods()


def _uninstalled_while_it_waits(lab: Lab, verdict: Verdict) -> None:
    """Deleted, and uninstalled in the next moment: the controller lives until the nodes are clean."""
    lab.delete()
    verdict.check(lab.runtime() is not None, "the NodeRuntime went before the uninstall could wait for it")
    verdict.measured("uninstall that waits: s", _helm(verdict, "uninstall"))
    _check_nothing_left(lab, verdict)


def _taken_over_in_a_rollout(lab: Lab, verdict: Verdict, release: previous.Release) -> None:
    previous.install(release)
    product.wait_ready(previous.IMAGE)
    began = time.time()
    lab.create(runtimes.full(rollout={"maxUnavailable": 1, "canary": {"count": 1}}))
    lab.wait_stage("configure")
    stages = [lab.stage(node) for node in lab.nodes]
    verdict.check("absent" in stages, f"no node is left to be done: {stages}")
    verdict.measured("upgrade in a rollout: s", _helm(verdict, "upgrade", "--install", "--wait", *_TAKE_OVER))
    lab.wait_ready(_READY)
    product.wait_ready(product.image())
    verdict.measured("rollout with an upgrade in it: s", time.time() - began)
    for name, count in lab.restarts(began).items():
        verdict.check(count == 1, f"{name}: {count} starts of containerd for one install with an upgrade in it")
    lab.run_user_pods(verdict)
    lab.end_user_pods()


def _refused(lab: Lab, verdict: Verdict) -> None:
    """A NodeRuntime that nobody deleted: the uninstall says so at once, and everything goes on."""
    began = time.monotonic()
    answer = said("uninstall", *_RELEASE, config=controlplane.kubeconfig("admin"), timeout=120)
    verdict.measured("uninstall that is refused: s", time.monotonic() - began)
    verdict.check("Error" in answer, f"an uninstall beside a NodeRuntime was not refused: {answer}")
    told = "kubectl delete noderuntime demo" in answer
    verdict.check(told, f"the refusal does not say what to do: {answer}")
    back = re.search(r'To keep the product: helm (rollback [^"\n]*)', answer)
    if verdict.check(back, f"the refusal does not say how to keep the product: {answer}") and back is not None:
        kept = said(*back[1].split(), config=controlplane.kubeconfig("admin"))
        verdict.check("Error" not in kept, f"helm {back[1]}: {kept}; after {answer}")
    verdict.check(lab.claims_ready(), f"after the refusal: {(lab.runtime() or {}).get('status')}")
    product.wait_ready(product.image())


def _upgraded_and_asked_to_delete(lab: Lab, verdict: Verdict) -> None:
    """From one release of Helm's to the next, which may delete NodeRuntimes; then one command ends it all."""
    image = product.image()
    newer = f"{image.partition(':')[0]}:{_NEXT}"
    for node in lab.nodes:
        node.run("ctr", "-n", "k8s.io", "images", "tag", "--force", _stored(image), _stored(newer))
    began = time.time()
    values = (f"--set=image.tag={_NEXT}", "--set=uninstall.deleteNodeRuntimes=true")
    verdict.measured("upgrade from Helm to Helm: s", _helm(verdict, "upgrade", "--wait", *values))
    product.wait_ready(newer)
    lab.wait_ready(_READY)
    for name, count in lab.restarts(began).items():
        verdict.check(count == 0, f"{name}: {count} starts of containerd for an upgrade from Helm to Helm")
    verdict.measured("uninstall that deletes: s", _helm(verdict, "uninstall"))
    _check_nothing_left(lab, verdict)


def _helm(verdict: Verdict, verb: str, *argv: str) -> float:
    """Seconds that it took; what it said is a failure of the scenario when it did not succeed."""
    chart = (str(CHART),) if verb == "upgrade" else ()
    began = time.monotonic()
    words = (verb, _RELEASE[0], *chart, *_RELEASE[1:], "--timeout=4m", *argv)
    answer = said(*words, config=controlplane.kubeconfig("admin"), timeout=300)
    verdict.check("Error" not in answer, f"helm {verb}: {answer[-1500:]}")
    return time.monotonic() - began


def _check_nothing_left(lab: Lab, verdict: Verdict) -> None:
    wait_until(lambda: not _remains(lab), 60, every=0.5, raises=False)
    verdict.check(not _remains(lab), f"after the uninstall there are {_remains(lab)}")
    left = lab.left_behind()
    verdict.check(not left, f"after the uninstall left behind: {left}")


def _remains(lab: Lab) -> list[str]:
    """Everything in the API that has our name, Nodes' marks and conditions included; namespaced things go with it."""
    found = []
    for path in _OURS:
        mine = [item["metadata"]["name"] for item in lab.observer.items(path)]
        found += [f"{path.rsplit('/', 1)[1]}/{name}" for name in mine if "runtime-reconciler" in name]
    for node in lab.observer.items(names.NODES):
        metadata, conditions = node["metadata"], node["status"].get("conditions", [])
        marks = [*metadata.get("labels", {}), *metadata.get("annotations", {})]
        marks = [key for key in marks if "runtime-reconciler" in key]
        marks += [one["type"] for one in conditions if one["type"] in ("ContainerdServing", "ConfigContested")]
        found += [f"{metadata['name']}: {mark}" for mark in marks]
    return found


def _identities(lab: Lab) -> dict[str, tuple[str, ...]]:
    return {pod["metadata"]["name"]: identity(pod) for pod in lab.observer.items(_PODS)}


def _stored(image: str) -> str:
    """As containerd names an image without a registry."""
    return f"docker.io/library/{image}"
