"""Rows d, e and f: a node that does not answer, marks removed by hand, a node that joins late."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import cluster, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict

_PRESENT = "runtime-reconciler.node-restriction.kubernetes.io/demo"
_STAGE = "stage.runtime-reconciler.io/demo"
_STATE = "state.runtime-reconciler.io/demo"
_WANTED = "example.com/wanted"
_SELECTOR = {"matchLabels": {_WANTED: "yes"}}


def not_ready(lab: Lab, verdict: Verdict) -> None:
    node, other = lab.nodes[1], lab.nodes[0]
    slow = runtimes.four_phases()
    slow["spec"]["phases"]["uninstall"] = runtimes.phase(f"sleep 3; {runtimes.UNINSTALL}")
    lab.create(slow)
    lab.wait_ready()
    lab.delete()
    wait_until(lambda: lab.stage(node) == "uninstall", 30, what=f"{node.name} in uninstall")
    node.run("systemctl", "stop", "kubelet")
    wait_until(lambda: lab.stage(other) == "absent", 60, what=f"{other.name} uninstalled meanwhile")
    verdict.check(lab.runtime() is not None, "d1: the object went although a node was not undone")
    told = wait_until(lambda: _says(lab, node.name), 120, every=0.5, raises=False)
    verdict.check(told, f"d1: no condition names {node.name}: {(lab.runtime() or {}).get('status')}")
    node.run("systemctl", "start", "kubelet")
    wait_until(lambda: cluster.ready(node), 60, every=0.5, what=f"{node.name} Ready")
    verdict.measured("d1: clean, s after the node is back", lab.wait_gone(90))


def _says(lab: Lab, node: str) -> bool:
    conditions = ((lab.runtime() or {}).get("status") or {}).get("conditions") or []
    return any(c["status"] == "True" and node in c.get("message", "") for c in conditions)


def present_label(lab: Lab, verdict: Verdict) -> None:
    lab.create(runtimes.full())
    lab.wait_ready()
    _unlabel(lab, _PRESENT)
    back = wait_until(lambda: _labels(lab, 0).get(_PRESENT) == "present", 20, raises=False)
    verdict.check(back, f"e1: the present label did not come back: {lab.state(lab.nodes[0])}")


def selector_label(lab: Lab, verdict: Verdict) -> None:
    for node in lab.nodes:
        lab.label(node, {_WANTED: "yes"})
    lab.create(runtimes.full(nodeSelector=_SELECTOR))
    lab.wait_ready()
    began = time.time()
    lab.label(lab.nodes[1], {_WANTED: None})
    wait_until(lambda: lab.stage(lab.nodes[1]) == "absent", 120, every=0.2, what="the deselected node uninstalled")
    verdict.measured("e2: uninstalled, s after the label was removed", time.time() - began)
    verdict.check(time.time() - began >= 55, "e2: uninstalled before it had stayed deselected for 60 s")
    verdict.check(not (lab.nodes[1].root / "opt/demo").exists(), "e2: said to be absent, and its files are there")
    verdict.check(runtimes.HANDLER not in lab.handlers(lab.nodes[1]), "e2: said to be absent, and CRI serves it")
    settled = wait_until(lambda: _counts(lab).get("total") == 1, 10, raises=False)
    verdict.check(settled and _counts(lab).get("ready") == 1, f"e2: the status says {_counts(lab)}")
    lab.delete()
    lab.wait_gone()
    lab.label(lab.nodes[0], {_WANTED: None})


def progress(lab: Lab, verdict: Verdict) -> None:
    began = time.time()
    lab.create(runtimes.full())
    lab.wait_ready()
    _unlabel(lab, _STAGE)
    back = wait_until(lambda: _labels(lab, 0).get(_STAGE) == "ready", 20, raises=False)
    verdict.check(back, "e3: the stage label did not come back")
    path = f"{names.NODES}/{lab.nodes[0].name}"
    lab.admin.patch(path, {"metadata": {"annotations": {_STATE: None}}})
    wait_until(lambda: lab.stage(lab.nodes[0]) == "ready", 60, every=0.1, what="e3: ready again without its state")
    lab.check_no_overlap(lab.nodes[0], began, verdict)
    verdict.check(runtimes.HANDLER in lab.handlers(lab.nodes[0]), "e3: said to be ready, but CRI does not serve it")
    lab.delete()
    lab.wait_gone()
    lab.check_no_overlap(lab.nodes[0], began, verdict)


def joins_late(lab: Lab, verdict: Verdict) -> None:
    began = time.time()
    lab.label(lab.nodes[0], {_WANTED: "yes"})
    lab.create(runtimes.four_phases(nodeSelector=_SELECTOR))
    wait_until(lambda: lab.stage(lab.nodes[0]) == "ready", 60, what="the first node ready")
    lab.label(lab.nodes[1], {_WANTED: "yes"})
    lab.wait_ready()
    for node in lab.nodes:
        phases = [phase for _, phase in lab.phase_pods(node, began)]
        verdict.check(phases == ["pre-install", "install"], f"f1: {node.name}: ran {phases}")
        lab.check_no_overlap(node, began, verdict)
    lab.delete()
    lab.wait_gone()
    for node in lab.nodes:
        lab.label(node, {_WANTED: None})


def _unlabel(lab: Lab, key: str) -> None:
    lab.label(lab.nodes[0], {key: None})


def _labels(lab: Lab, index: int) -> names.Object:
    found: names.Object = lab.observer.get(f"{names.NODES}/{lab.nodes[index].name}")["metadata"]["labels"]
    return found


def _counts(lab: Lab) -> names.Object:
    counts: names.Object = ((lab.runtime() or {}).get("status") or {}).get("nodes") or {}
    return counts
