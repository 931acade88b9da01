"""Scenarios 8 and 9: nodes that go off, come back, are made anew; and a running pod through an upgrade."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import cluster, images, noderoot, paths, product, productimage, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict, identity
from tests.cluster.node import Node

_CONVERGES = 150.0
_PAYLOADS = ("/opt/demo", "/usr/local/bin/containerd-shim-demo-v2")
_TAINT = {"key": "example.com/added-later", "effect": "NoExecute", "value": "x"}


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    _off_during_uninstall(lab, verdict)
    _rebooted_between_stages(lab, verdict)
    _tainted_after_install(lab, verdict)
    _fresh_root(lab, verdict)
    _registered_again(lab, verdict)
    _back_after_the_object(lab, verdict)


def upgrade(lab: Lab, verdict: Verdict, loops: int) -> None:
    """Scenario 9: in-place upgrade and a restart of kubelet under a running pod of the RuntimeClass."""
    lab.create(runtimes.full())
    lab.wait_ready()
    lab.run_user_pods(verdict)
    path = "/api/v1/namespaces/default/pods"
    before = {pod["metadata"]["name"]: identity(pod) for pod in lab.observer.items(path)}
    newer = runtimes.full(image=images.PAYLOAD_2)["spec"]
    old = (lab.runtime() or {}).get("status", {}).get("revision")
    lab.admin.patch(f"{names.NODE_RUNTIMES}/{runtimes.NAME}", {"spec": {"phases": newer["phases"]}})
    wait_until(lambda: (lab.runtime() or {}).get("status", {}).get("revision") != old, 20, what="a new revision")
    lab.wait_ready(90)
    for node in lab.nodes:
        version = (node.root / "opt/demo/bin/version").read_text().strip()
        verdict.check(version == "2", f"{node.name}: after the upgrade the payload's version is {version}")
        node.run("systemctl", "restart", "kubelet")
    time.sleep(10)
    for node in lab.nodes:
        wait_until(lambda node=node: cluster.ready(node), 60, every=0.5, what=f"{node.name} Ready")
        lab.check_user_pod(node, f"user-{node.name}", verdict)
    after = {pod["metadata"]["name"]: identity(pod) for pod in lab.observer.items(path)}
    verdict.check(before == after, f"the pods are others than before: {before} → {after}")
    lab.end_user_pods()
    lab.delete()
    lab.wait_gone()
    verdict.check(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def _off_during_uninstall(lab: Lab, verdict: Verdict) -> None:
    """Off before the delete: the other node is undone, the object stays and says why; back: undone too."""
    node, other = lab.nodes[1], lab.nodes[0]
    lab.create(runtimes.full())
    lab.wait_ready()
    node.power_off()
    lab.delete()
    wait_until(lambda: lab.stage(other) == "absent", 60, what=f"{other.name} uninstalled while the other is off")
    verdict.check(lab.runtime() is not None, "the object went although a node was not undone")
    told = wait_until(lambda: _says(lab, node.name), 90, every=0.5, raises=False)
    verdict.check(told, f"nothing names {node.name}: {(lab.runtime() or {}).get('status')}")
    _on(lab, node)
    verdict.measured("powered off, back: clean after s", lab.wait_gone(_CONVERGES))
    verdict.check(not lab.left_behind(), f"powered off and back: left behind: {lab.left_behind()}")


def _says(lab: Lab, node: str) -> bool:
    """Whether a condition of the NodeRuntime names the node that is waited for."""
    conditions = ((lab.runtime() or {}).get("status") or {}).get("conditions") or []
    return any(node in condition.get("message", "") for condition in conditions)


def _rebooted_between_stages(lab: Lab, verdict: Verdict) -> None:
    node = lab.nodes[1]
    lab.create(runtimes.four_phases())
    lab.wait_stage("install")
    node.power_off()
    time.sleep(1)
    _on(lab, node)
    verdict.measured("rebooted in install: ready after s", lab.wait_ready(_CONVERGES))
    verdict.check(runtimes.HANDLER in lab.handlers(node), "rebooted: said to be ready, but CRI does not serve it")
    lab.delete()
    lab.wait_gone(_CONVERGES)
    verdict.check(not lab.left_behind(), f"rebooted: left behind: {lab.left_behind()}")


def _tainted_after_install(lab: Lab, verdict: Verdict) -> None:
    node = lab.nodes[0]
    lab.create(runtimes.full())
    lab.wait_ready()
    path = f"{names.NODES}/{node.name}"
    lab.admin.patch(path, {"spec": {"taints": [_TAINT]}})
    time.sleep(3)
    lab.delete()
    verdict.measured("tainted after install: clean after s", lab.wait_gone(60))
    verdict.check(not lab.left_behind(), f"tainted: left behind: {lab.left_behind()}")
    lab.admin.patch(path, {"spec": {"taints": None}})


def _fresh_root(lab: Lab, verdict: Verdict) -> None:
    """The machine is made anew under the same Node object: it is installed again, without being asked."""
    node = lab.nodes[1]
    lab.create(runtimes.full())
    lab.wait_ready()
    node.destroy()
    node.prepare(noderoot.node_root(), paths.RUN / "images")
    _on(lab, node)
    served = wait_until(lambda: lab.serves(node), _CONVERGES, every=1, raises=False)
    verdict.check(served, f"a fresh root was not installed again: {lab.state(node)}")
    lab.delete()
    lab.wait_gone(_CONVERGES)
    verdict.check(not lab.left_behind(), f"fresh root: left behind: {lab.left_behind()}")


def _registered_again(lab: Lab, verdict: Verdict) -> None:
    """Node deleted and created again under its name, its disk as it was: not counted meanwhile, then ready again."""
    node = lab.nodes[1]
    lab.create(runtimes.full())
    lab.wait_ready()
    node.power_off()
    lab.admin.delete(f"{names.NODES}/{node.name}")
    counted = wait_until(lambda: _counts(lab).get("total") == 1, 30, raises=False)
    verdict.check(counted, f"a deleted Node is still counted: {_counts(lab)}")
    _on(lab, node, registers=True)
    verdict.measured("registered again: ready after s", lab.wait_ready(_CONVERGES))
    verdict.check(runtimes.HANDLER in lab.handlers(node), "registered again: ready, but CRI does not serve it")
    lab.delete()
    lab.wait_gone(_CONVERGES)
    verdict.check(not lab.left_behind(), f"registered again: left behind: {lab.left_behind()}")


def _back_after_the_object(lab: Lab, verdict: Verdict) -> None:
    """The Node goes, so does the NodeRuntime; the machine comes back with our handler and is undone by its journal.

    The payload's own files stay: the version that could take them away went with the NodeRuntime.
    """
    node = lab.nodes[1]
    lab.create(runtimes.full())
    lab.wait_ready()
    node.power_off()
    lab.admin.delete(f"{names.NODES}/{node.name}")
    lab.delete()
    lab.wait_gone()
    _on(lab, node, registers=True)
    undone = wait_until(lambda: lab.served(node) == ["runc"], _CONVERGES, every=0.5, raises=False)
    verdict.check(undone, f"back after the NodeRuntime had gone: CRI still serves {lab.served(node)}")
    left = [text for text in lab.left_behind(settle=20) if not any(path in text for path in _PAYLOADS)]
    verdict.check(not left, f"back after the NodeRuntime had gone: left behind: {left}")
    node.sh(runtimes.UNINSTALL.replace("/host-opt", "/opt").replace("/host-bin", "/usr/local/bin"))


def _counts(lab: Lab) -> names.Object:
    counts: names.Object = ((lab.runtime() or {}).get("status") or {}).get("nodes") or {}
    return counts


def _on(lab: Lab, node: Node, *, registers: bool = False) -> None:
    """Power on, with the product's image where a fresh root lacks it.

    A kubelet that `registers` its Node anew waits for over two minutes before it tries again what it could not do
    without one ("failed to initialize CSINode"); started again it does so at once.
    """
    node.start()
    if registers:
        path = f"{names.NODES}/{node.name}"
        wait_until(lambda: lab.observer.find(path) is not None, 60, what=f"{node.name} registered")
        node.run("systemctl", "restart", "kubelet")
    wait_until(lambda: lab.probe.serving(node.name), 60, what=f"{node.name} serves CRI")
    productimage.load(product.archive(), node)
    wait_until(lambda: cluster.ready(node), 90, every=0.5, what=f"{node.name} Ready")
