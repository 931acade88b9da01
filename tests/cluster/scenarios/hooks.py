"""Scenario 2: a payload that never ends by itself, and whose preStop hook restarts containerd."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import product, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import journal

_HOOK = {"preStop": {"exec": {"command": ["/bin/sh", "-c", runtimes.RESTART]}}}
_DEAF = "trap : TERM; while :; do sleep 1; done"
_DEFAULT_PODS = "/api/v1/namespaces/default/pods"
_WATCHED = 120.0
"""Seconds within which kubelet alone restarts once more than it may with agents: it tries again 10 to 15 s after each
failure, on an idle machine."""
_MARGIN = 5.0
_RESTARTS = 2


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    for grace in (5, 60):
        _delete_while_it_sleeps(lab, verdict, grace)
    seconds, restarts = without_agents(lab)
    verdict.measured("without agents, grace 5: restarts by the hook", restarts)
    endless = Verdict(quiet=True)
    judge(endless, 5, seconds, restarts)
    verdict.check(len(endless.failures) == 2, f"without agents: {seconds:.0f} s, {restarts} restarts")


def judge(verdict: Verdict, grace: int, seconds: float, restarts: int) -> None:
    """The kill's two bounds; `seconds` from the deletion until the pod was gone."""
    verdict.check(seconds <= grace + _MARGIN, f"grace {grace} s: gone after {seconds:.1f} s")
    verdict.check(restarts <= _RESTARTS, f"grace {grace} s: {restarts} restarts by the hook")


def without_agents(lab: Lab) -> tuple[float, int]:
    """The same kill with kubelet alone: seconds until it ended (inf: it did not while it was watched), and restarts.

    Afterwards the agents are back and have ended it; a node that it left without containerd is started by hand.
    """
    node = lab.nodes[0]
    pod = runtimes.user_pod("hook", node.name, runtime_class=None, grace=5)
    pod["metadata"]["annotations"] = {"runtime-reconciler.io/kill-retry": "true"}
    spec = runtimes.phase(_DEAF, lifecycle=_HOOK)
    pod["spec"]["hostPID"] = True
    pod["spec"]["containers"][0] |= {key: spec[key] for key in ("image", "command", "securityContext", "lifecycle")}
    with product.no_agents():
        lab.admin.create(_DEFAULT_PODS, pod)
        wait_until(lambda: _running(lab, _DEFAULT_PODS) == 1, 30, what="the pod with the hook running")
        deleted = time.time()
        lab.admin.delete(f"{_DEFAULT_PODS}/hook")
        wait_until(lambda: _gone(lab) or len(journal.starts(node, deleted)) > _RESTARTS, _WATCHED, raises=False)
        seconds = time.time() - deleted if _gone(lab) else float("inf")
        restarts = len(journal.starts(node, deleted))
        node.sh("systemctl reset-failed containerd; systemctl start containerd")
    wait_until(lambda: _gone(lab), 60, what="the pod with the hook gone, the agents back")
    return seconds, restarts


def _delete_while_it_sleeps(lab: Lab, verdict: Verdict, grace: int) -> None:
    """The install pod is killed by the deletion; its hook restarts containerd in the midst of its own kill."""
    phases = {"install": runtimes.phase(_DEAF, grace=grace, lifecycle=_HOOK), "uninstall": runtimes.phase("true")}
    began = time.time()
    lab.create(runtimes.runtime(phases=phases, handlers=[], bake=0))
    selector = f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/phase%3Dinstall"
    wait_until(lambda: _running(lab, selector) == len(lab.nodes), 30, what="install pods running")
    deleted = time.time()
    lab.delete()
    seconds = lab.wait_gone(grace + 90)
    verdict.measured(f"grace {grace}: clean after s", seconds)
    verdict.check(not lab.left_behind(), f"grace {grace} s: left behind: {lab.left_behind()}")
    for node in lab.nodes:
        count = len(journal.starts(node, deleted))
        verdict.measured(f"grace {grace}: restarts by the hook", count)
        judge(verdict, grace, seconds, count)
    lab.check_pods_gone(began, verdict)


def _gone(lab: Lab) -> bool:
    return not lab.observer.items(_DEFAULT_PODS)


def _running(lab: Lab, selector: str) -> int:
    return sum(1 for pod in lab.observer.items(selector) if pod.get("status", {}).get("phase") == "Running")
