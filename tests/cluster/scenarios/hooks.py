"""Scenario 2: a payload that never ends by itself, and whose preStop hook restarts containerd."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import journal

_MARGIN = 5.0
_RESTARTS = 2


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for grace in (5, 60):
        _delete_while_it_sleeps(lab, verdict, grace)


def _delete_while_it_sleeps(lab: Lab, verdict: Verdict, grace: int) -> None:
    """The install pod is killed by the deletion; its hook restarts containerd in the midst of its own kill."""
    hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", runtimes.RESTART]}}}
    deaf = "trap : TERM; while :; do sleep 1; done"
    phases = {"install": runtimes.phase(deaf, grace=grace, lifecycle=hook), "uninstall": runtimes.phase("true")}
    began = time.time()
    lab.create(runtimes.runtime(phases=phases, handlers=[], bake=0))
    selector = f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/phase%3Dinstall"
    wait_until(lambda: _running(lab, selector) == len(lab.nodes), 30, what="install pods running")
    deleted = time.time()
    lab.delete()
    seconds = lab.wait_gone(grace + 90)
    verdict.measured(f"grace {grace}: clean after s", seconds)
    verdict.check(seconds <= grace + _MARGIN, f"grace {grace} s: clean after {seconds:.1f} s")
    verdict.check(not lab.left_behind(), f"grace {grace} s: left behind: {lab.left_behind()}")
    for node in lab.nodes:
        count = len(journal.starts(node, deleted))
        verdict.measured(f"grace {grace}: restarts by the hook", count)
        verdict.check(count <= _RESTARTS, f"{node.name}: grace {grace} s: {count} restarts by the hook")
    lab.check_pods_gone(began, verdict)


def _running(lab: Lab, selector: str) -> int:
    return sum(1 for pod in lab.observer.items(selector) if pod.get("status", {}).get("phase") == "Running")
