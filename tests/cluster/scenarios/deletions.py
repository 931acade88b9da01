"""Scenario 5: the NodeRuntime is deleted in each stage, in each of the three ways."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import images, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import THOROUGH, Lab, Verdict
from tests.cluster.scenarios import agents

_STAGES_IN = ("pre-install", "install", "configure", "verify", "ready")
_STAGES_OUT = ("unconfigure", "uninstall", "post-uninstall")
_PROPAGATIONS = ("Background", "Foreground", "Orphan")
_CLEAN = 60.0


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    """In a short run each stage once, and each way in a third of them."""
    for number, stage in enumerate((*_STAGES_IN, *_STAGES_OUT, "failed")):
        one = _PROPAGATIONS[number % len(_PROPAGATIONS)]
        for propagation in (one,) if loops < THOROUGH else _PROPAGATIONS:
            _deleted_in(lab, verdict, stage, propagation)


def _deleted_in(lab: Lab, verdict: Verdict, stage: str, propagation: str) -> None:
    began = time.time()
    if stage == "failed":
        _failed(lab, verdict, propagation)
        return
    if stage in _STAGES_OUT:
        _in_a_reinstall(lab, stage)
    else:
        lab.create(runtimes.four_phases())
        lab.wait_stage(stage)
    _delete(lab, verdict, began, stage, propagation)


def _in_a_reinstall(lab: Lab, stage: str) -> None:
    """On the way out while the NodeRuntime is to stay: an upgrade by way of absent."""
    lab.create(runtimes.four_phases(upgrade={"strategy": "Reinstall"}))
    lab.wait_ready()
    newer = runtimes.four_phases(image=images.PAYLOAD_2)["spec"]["phases"]
    lab.admin.patch(f"{names.NODE_RUNTIMES}/{runtimes.NAME}", {"spec": {"phases": newer}})
    lab.wait_stage(stage)


def _failed(lab: Lab, verdict: Verdict, propagation: str) -> None:
    began = time.time()
    for node in lab.nodes:
        agents.refuse(node, True)
    try:
        lab.create(runtimes.four_phases())
        wait_until(lambda: "failed" in [lab.stage(node) for node in lab.nodes], _CLEAN, what="a node failed")
        _delete(lab, verdict, began, "failed", propagation)
    finally:
        for node in lab.nodes:
            agents.refuse(node, False)


def _delete(lab: Lab, verdict: Verdict, began: float, stage: str, propagation: str) -> None:
    lab.delete(propagation=propagation)
    seconds = lab.wait_gone(_CLEAN + 30)
    verdict.measured("delete to clean s", seconds)
    verdict.check(seconds <= _CLEAN, f"{propagation} in {stage}: clean after {seconds:.1f} s")
    left = [text for text in lab.left_behind(settle=0) if agents.DROP_INS not in text]
    verdict.check(not left, f"{propagation} in {stage}: left behind: {left}")
    lab.check_pods_gone(began, verdict)
