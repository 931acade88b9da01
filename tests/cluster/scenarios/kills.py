"""Scenario 6: the leading controller and the agents are killed, or stand still, in the midst of their work."""

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

_STAGES_IN = ("pre-install", "install", "configure", "verify")
_STAGES_OUT = ("unconfigure", "uninstall", "post-uninstall")
_GAP = 15.0
_CLEAN = 90.0
_STAND_STILL = 12.0
"""Seconds of SIGSTOP: longer than a Lease lasts (10 s), so that there are two leaders when it goes on."""
_AGENT_DELAYS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Seconds after the stage was seen: one step of the transaction after the other is hit."""


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for stage in (*_STAGES_IN, *_STAGES_OUT):
        _disturbed_loop(lab, verdict, stage, f"leader killed in {stage}", lambda: _kill(product.leader()), restarts=1)
        _check_gap(lab, verdict, stage)
    _disturbed_loop(lab, verdict, "install", "two leaders", _stand_still, restarts=1)
    for stage in ("configure", "unconfigure"):
        for delay in _AGENT_DELAYS:
            act = _agent_killer(lab, delay)
            _disturbed_loop(lab, verdict, stage, f"agent killed {delay} s into {stage}", act, restarts=2)


def _disturbed_loop(
    lab: Lab, verdict: Verdict, stage: str, what: str, disturb: Callable[[], None], *, restarts: int
) -> None:
    """One loop with `disturb` in `stage`; it ends as an undisturbed one, with at most `restarts` per change."""
    wait_until(lambda: len(product.ready_pods()) == 2 + len(lab.nodes), 90, every=0.5, what="all pods of ours ready")
    began = time.time()
    lab.create(runtimes.four_phases())
    if stage in _STAGES_IN:
        lab.wait_stage(stage)
        disturb()
    lab.wait_ready(_CLEAN)
    deleted = time.time()
    for node in lab.nodes:
        verdict.check(runtimes.HANDLER in lab.handlers(node), f"{what}: said to be ready, but CRI does not serve it")
    lab.delete()
    if stage in _STAGES_OUT:
        lab.wait_stage(stage)
        disturb()
    verdict.measured(f"{what}: uninstall s", lab.wait_gone(_CLEAN))
    left = lab.left_behind()
    verdict.check(not left, f"{what}: left behind: {left}")
    for node in lab.nodes:
        starts = journal.starts(node, began)
        first, second = [s for s in starts if s.at < deleted], [s for s in starts if s.at >= deleted]
        verdict.check(1 <= len(first) <= restarts, f"{what}: {node.name}: {len(first)} starts for the install")
        verdict.check(1 <= len(second) <= restarts, f"{what}: {node.name}: {len(second)} starts for the uninstall")
    lab.check_pods_gone(began, verdict)


def _check_gap(lab: Lab, verdict: Verdict, stage: str) -> None:
    """After a kill another pod leads soon: the time is bounded from above by the loop's own wait."""
    began = time.monotonic()
    wait_until(lambda: _has_leader(), _GAP, raises=False)
    verdict.check(_has_leader(), f"leader killed in {stage}: nobody leads {time.monotonic() - began:.0f} s later")


def _has_leader() -> bool:
    try:
        product.leader()
    except LookupError:
        return False
    return True


def _pids(pod: Object) -> list[int]:
    """The product's own processes of a pod, not the pause process."""
    found = processes.of_pod(pod["metadata"]["uid"])
    return [process.pid for process in found if "reconciler" in process.command]


def _kill(pod: Object) -> None:
    for pid in _pids(pod):
        os.kill(pid, signal.SIGKILL)


def _stand_still() -> None:
    """The leader is stopped for longer than its Lease, another leads meanwhile, and then it goes on."""
    pids = _pids(product.leader())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(_STAND_STILL)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _agent_killer(lab: Lab, delay: float) -> Callable[[], None]:
    pods = [product.agent_pod(node) for node in lab.nodes] if len(product.ready_pods()) >= 2 else []

    def act() -> None:
        time.sleep(delay)
        for pod in pods:
            _kill(pod)

    return act
