"""Rows a, c and h: the NodeRuntime is deleted at a bad moment, or the leader dies in the last one."""

from __future__ import annotations

import time

from tests.cluster import api as names
from tests.cluster import runtimes
from tests.cluster.api import ApiError
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict, phase_of
from tests.cluster.scenarios import kills

_CLEAN = 60.0


def one_of_two_done(lab: Lab, verdict: Verdict) -> None:
    lab.create(runtimes.full(rollout={"maxUnavailable": 1, "canary": {"count": 0}}))
    wait_until(lambda: "ready" in [lab.stage(node) for node in lab.nodes], 40, what="one node ready")
    verdict.check(not lab.claims_ready(), "both nodes were done at once with maxUnavailable 1")
    lab.delete()
    lab.wait_gone(_CLEAN)
    verdict.check(not lab.left_behind(), f"a2: left behind: {lab.left_behind()}")


def in_pre_install(lab: Lab, verdict: Verdict) -> None:
    slow = runtimes.four_phases()
    slow["spec"]["phases"]["preInstall"] = runtimes.phase("sleep 20")
    lab.create(slow)
    lab.wait_stage("pre-install")
    lab.delete()
    lab.wait_gone(_CLEAN)
    verdict.check(not lab.left_behind(), f"a3: left behind: {lab.left_behind()}")
    again = time.time()
    lab.create(runtimes.four_phases())
    lab.wait_ready()
    for node in lab.nodes:
        phases = [phase for _, phase in lab.phase_pods(node, again)]
        verdict.check(phases == ["pre-install", "install"], f"a3: {node.name}: the second install ran {phases}")


def again_at_once(lab: Lab, verdict: Verdict) -> None:
    began = time.time()
    lab.create(runtimes.full())
    lab.wait_ready()
    lab.delete()
    wait_until(lambda: _create(lab), _CLEAN, every=0.01, what="a NodeRuntime of the same name")
    lab.wait_ready()
    for node in lab.nodes:
        lab.check_no_overlap(node, began, verdict)
        phases = [phase for _, phase in lab.phase_pods(node, began)]
        verdict.check(phases == ["install", "uninstall", "install"], f"c1: {node.name}: ran {phases}")


def leader_killed_at_the_last_signal(lab: Lab, verdict: Verdict) -> None:
    lab.create(runtimes.four_phases())
    lab.wait_ready()
    lab.delete()
    path = f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/phase%3Dpost-uninstall"
    told = (event["object"] for event in lab.observer.watch(path, seconds=40))
    seen = next((pod for pod in told if _ended(pod)), None)
    if verdict.check(seen is not None, "h4: no end of a post-uninstall pod was told of"):
        kills.kill_leader(verdict)
    lab.wait_gone(_CLEAN)
    verdict.check(not lab.left_behind(), f"h4: left behind: {lab.left_behind()}")


def leader_killed_at_the_end(lab: Lab, verdict: Verdict) -> None:
    lab.create(runtimes.four_phases())
    lab.wait_ready()
    lab.delete()
    wait_until(lambda: not any(lab.state(node) for node in lab.nodes), 40, every=0.005, what="h3: the nodes clean")
    kills.kill_leader(verdict)
    lab.wait_gone(_CLEAN)
    verdict.check(not lab.left_behind(), f"h3: left behind: {lab.left_behind()}")


def _ended(pod: names.Object) -> bool:
    states = [status["state"] for status in pod.get("status", {}).get("containerStatuses", [])]
    return phase_of(pod) == "Succeeded" or any("terminated" in state for state in states)


def _create(lab: Lab) -> bool:
    try:
        lab.create(runtimes.full())
    except ApiError as error:
        if error.status != 409:
            raise
        return False
    return True
