"""Rows b and g: payloads that restart containerd, and one whose image is edited."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import images, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import journal

_FAST = 30.0


def uninstall_restarts(lab: Lab, verdict: Verdict) -> None:
    runtime = runtimes.full()
    runtime["spec"]["phases"]["uninstall"] = runtimes.phase(f"{runtimes.UNINSTALL}; {runtimes.RESTART}")
    lab.create(runtime)
    lab.wait_ready()
    deleted = time.time()
    lab.delete()
    seconds = lab.wait_gone(60)
    verdict.measured("b2: clean after s", seconds)
    verdict.check(seconds <= _FAST, f"b2: clean after {seconds:.1f} s")
    for node in lab.nodes:
        count = len(journal.starts(node, deleted))
        verdict.check(count == 2, f"b2: {node.name}: {count} starts of containerd, ours and the payload's are 2")


def every_phase_restarts(lab: Lab, verdict: Verdict) -> None:
    kubelet = runtimes.RESTART.replace("containerd", "kubelet")
    phases = {
        "preInstall": runtimes.phase(runtimes.RESTART),
        "install": runtimes.phase(f"{runtimes.INSTALL}; {runtimes.RESTART}; {kubelet}"),
        "uninstall": runtimes.phase(f"{runtimes.UNINSTALL}; {runtimes.RESTART}"),
        "postUninstall": runtimes.phase(runtimes.RESTART),
    }
    began = time.time()
    lab.create(runtimes.runtime(phases=phases, handlers=[runtimes.handler()], bake=2))
    verdict.measured("b3: ready after s", lab.wait_ready(90))
    deleted = time.time()
    lab.delete()
    seconds = lab.wait_gone(90)
    verdict.measured("b3: clean after s", seconds)
    verdict.check(seconds <= _FAST, f"b3: clean after {seconds:.1f} s")
    for node in lab.nodes:
        starts = journal.starts(node, began)
        first, second = [s for s in starts if s.at < deleted], [s for s in starts if s.at >= deleted]
        counts = (len(first), len(second))
        verdict.check(counts == (3, 3), f"b3: {node.name}: {counts} starts: two of the payload and ours, twice")


def image_edited(lab: Lab, verdict: Verdict) -> None:
    began = time.time()
    one_by_one = {"maxUnavailable": 1, "canary": {"count": 0}}
    lab.create(runtimes.full(rollout=one_by_one))
    lab.wait_ready()
    revision = _revision(lab)
    _edit_image(lab, images.PAYLOAD_2)
    wait_until(lambda: _revision(lab) != revision, 20, what="a new revision")
    at_work = 0
    deadline = time.monotonic() + 90
    while not lab.claims_ready() and time.monotonic() < deadline:
        at_work = max(at_work, sum(lab.stage(node) != "ready" for node in lab.nodes))
        time.sleep(0.02)
    verdict.check(at_work == 1, f"g1: {at_work} nodes were at work at once with maxUnavailable 1")
    for node in lab.nodes:
        version = (node.root / "opt/demo/bin/version").read_text().strip()
        verdict.check(version == "2", f"g1: {node.name}: ready by the new revision with version {version}")
    _edit_image(lab, images.PAYLOAD)
    lab.delete()
    lab.wait_gone(60)
    for node in lab.nodes:
        ran = [(_image(pod), phase) for pod, phase in lab.phase_pods(node, began)]
        last = next(image for image, phase in reversed(ran) if phase == "install")
        verdict.check(ran[-1] == (last, "uninstall"), f"g1: {node.name}: not undone by the last version: {ran}")


def _revision(lab: Lab) -> str:
    return str(((lab.runtime() or {}).get("status") or {}).get("revision", ""))


def _edit_image(lab: Lab, image: str) -> None:
    newer = runtimes.full(image=image)["spec"]["phases"]
    lab.admin.patch(f"{names.NODE_RUNTIMES}/{runtimes.NAME}", {"spec": {"phases": newer}})


def _image(pod: names.Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])
