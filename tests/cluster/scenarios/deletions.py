"""Scenario 5: the NodeRuntime is deleted in each stage, in each of the three ways."""

from __future__ import annotations

import time

from tests.cluster import runtimes
from tests.cluster.lab import Lab, Verdict

_STAGES = ("pre-install", "install", "configure", "verify", "ready")
_PROPAGATIONS = ("Background", "Foreground", "Orphan")
_CLEAN = 60.0


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for stage in _STAGES:
        for propagation in _PROPAGATIONS:
            _delete_in(lab, verdict, stage, propagation)


def _delete_in(lab: Lab, verdict: Verdict, stage: str, propagation: str) -> None:
    began = time.time()
    lab.create(runtimes.four_phases())
    lab.wait_stage(stage)
    lab.delete(propagation=propagation)
    seconds = lab.wait_gone(_CLEAN + 30)
    verdict.measured("delete to clean s", seconds)
    verdict.check(seconds <= _CLEAN, f"{propagation} in {stage}: clean after {seconds:.1f} s")
    left = lab.left_behind(settle=0)
    verdict.check(not left, f"{propagation} in {stage}: left behind: {left}")
    lab.check_pods_gone(began, verdict)
