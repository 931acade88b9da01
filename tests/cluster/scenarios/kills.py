"""Scenario 6, the controller: the leader is killed in each stage, or stands still while another one leads."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.cluster import product, runtimes
from tests.cluster.api import Object
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import journal, processes

STAGES_IN = ("pre-install", "install", "configure", "verify")
STAGES_OUT = ("unconfigure", "uninstall", "post-uninstall")
_GAP = 15.0
CLEAN = 90.0
_STAND_STILL = 12.0
"""Seconds of SIGSTOP: longer than a Lease lasts (10 s), so that there are two leaders when it goes on."""


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for stage in (*STAGES_IN, *STAGES_OUT):
        disturbed_loop(lab, verdict, stage, f"leader killed in {stage}", lambda: kill_leader(verdict))
    disturbed_loop(lab, verdict, "install", "two leaders", _stand_still)


def disturbed_loop(lab: Lab, verdict: Verdict, stage: str, what: str, disturb: Callable[[], None]) -> None:
    """One loop with `disturb` in `stage`; it ends as an undisturbed one, with one restart per change."""
    product.refresh()
    began = time.time()
    lab.create(runtimes.four_phases())
    if stage in STAGES_IN:
        lab.wait_stage(stage)
        disturb()
    lab.wait_ready(CLEAN)
    deleted = time.time()
    for node in lab.nodes:
        verdict.check(runtimes.HANDLER in lab.handlers(node), f"{what}: said to be ready, but CRI does not serve it")
    lab.delete()
    if stage in STAGES_OUT:
        lab.wait_stage(stage)
        disturb()
    verdict.measured("leader disturbed: uninstall s", lab.wait_gone(CLEAN))
    left = lab.left_behind()
    verdict.check(not left, f"{what}: left behind: {left}")
    check_restarts(lab, verdict, what, began, deleted)
    lab.check_pods_gone(began, verdict)


def check_restarts(lab: Lab, verdict: Verdict, what: str, began: float, deleted: float) -> None:
    """One start of containerd for the change before `deleted`, and one for that after it, on each node."""
    for node in lab.nodes:
        starts = journal.starts(node, began)
        first, second = [s for s in starts if s.at < deleted], [s for s in starts if s.at >= deleted]
        verdict.check(len(first) == 1, f"{what}: {node.name}: {len(first)} starts for the install")
        verdict.check(len(second) == 1, f"{what}: {node.name}: {len(second)} starts for the uninstall")


def kill_leader(verdict: Verdict) -> None:
    """SIGKILL; nobody leads until the Lease is renewed: by the other replica, or by this one's next container."""
    kill(product.leader())
    before, killed = product.lease(), time.monotonic()
    led = wait_until(lambda: product.lease() != before and product.lease()[0], 2 * _GAP, raises=False)
    gap = time.monotonic() - killed
    verdict.measured("leader killed: nobody leads for s", gap)
    verdict.check(led and gap <= _GAP, f"nobody led for {gap:.1f} s")


def pids(pod: Object) -> list[int]:
    """The product's own processes of a pod, not the pause process."""
    found = processes.of_pod(pod["metadata"]["uid"])
    return [process.pid for process in found if "reconciler" in process.command]


def kill(pod: Object) -> None:
    for pid in pids(pod):
        os.kill(pid, signal.SIGKILL)


def _stand_still() -> None:
    """The leader is stopped for longer than its Lease, another leads meanwhile, and then it goes on."""
    before, _ = product.lease()
    stopped = pids(product.leader())
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(_STAND_STILL)
        wait_until(lambda: product.lease()[0] != before, _GAP, what="another leader")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
