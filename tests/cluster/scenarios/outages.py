"""Scenarios 3 and 4: containerd away while pods are killed, in the start limit, stopped by a person."""

from __future__ import annotations

import threading
import time

from tests.cluster import api as names
from tests.cluster import runtimes
from tests.cluster.api import Object
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node

_OUTAGE = 8.0
_GRACE = 5
_FOREIGN_GRACE = 60
_AFTER = 2.0
_REVIVED = 15.0


def kills(lab: Lab, verdict: Verdict, loops: int) -> None:
    """Scenario 3: phase pods that ignore TERM, and a foreign pod that is owed a long grace."""
    began = time.time()
    deaf = runtimes.phase("trap : TERM; while :; do sleep 1; done", grace=_GRACE)
    lab.create(runtimes.runtime(phases={"install": deaf, "uninstall": runtimes.phase("true")}, handlers=[], bake=0))
    foreign = "/api/v1/namespaces/default/pods"
    lab.admin.create(foreign, _foreign_pod(lab.nodes[0]))
    selector = f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/phase%3Dinstall"
    wait_until(lambda: _running(lab, selector) == len(lab.nodes), 30, what="install pods running")
    wait_until(lambda: _running(lab, foreign) == 1, 30, what="the foreign pod running")
    uids = {pod["metadata"]["uid"] for pod in lab.observer.items(selector)}
    asked = time.time()
    lab.admin.delete(f"{foreign}/foreign")
    lab.delete()
    time.sleep(0.7)
    _everywhere(lab, "systemctl stop containerd")
    time.sleep(_OUTAGE)
    _everywhere(lab, "systemctl start containerd")
    wait_until(lambda: all(lab.probe.serving(node.name) for node in lab.nodes), 20, what="CRI serving again")
    serving = time.time()
    wait_until(lambda: uids <= {gone.uid for gone in lab.pods.since(began)}, 60, what="install pods gone")
    last = max(gone.at for gone in lab.pods.since(began) if gone.uid in uids) - serving
    verdict.measured("phase pods gone, s after CRI serves", last)
    verdict.check(last <= _AFTER + _GRACE, f"phase pods gone {last:.1f} s after CRI serves")
    lab.wait_gone(60)
    wait_until(lambda: any(gone.name == "foreign" for gone in lab.pods.since(began)), 150, what="the foreign pod gone")
    kept = next(gone.at for gone in lab.pods.since(began) if gone.name == "foreign") - asked
    verdict.measured("foreign pod gone, s after its delete", kept)
    verdict.check(kept >= _FOREIGN_GRACE, f"the foreign pod was killed after {kept:.1f} of its {_FOREIGN_GRACE} s")
    lab.check_pods_gone(began, verdict)


def start_limit(lab: Lab, verdict: Verdict, loops: int) -> None:
    """Scenario 4: the start limit with a good configuration is ended; a stop by an admin is a person's will."""
    node, other = lab.nodes
    began = time.time()
    node.sh("for i in 1 2 3 4 5 6 7 8; do systemctl restart containerd; done", check=False, timeout=60)
    verdict.check(_unit(node) == "failed", f"the start limit was not reached: containerd is {_unit(node)}")
    revived = wait_until(lambda: lab.probe.serving(node.name), 40, raises=False)
    seconds = time.time() - began
    verdict.measured("start limit: serving again after s", seconds)
    verdict.check(revived and seconds <= _REVIVED, f"serving again after {seconds:.1f} s: {revived}")
    found = wait_until(lambda: bool(lab.events(node, began)), 20, every=0.5, raises=False)
    verdict.check(found, "no Event regarding the node says what happened")
    verdict.facts["start limit: Events"] = lab.events(node, began)
    other.run("systemctl", "stop", "containerd")
    time.sleep(20)
    verdict.check(_unit(other) == "inactive", f"stopped by an admin, containerd is {_unit(other)}")
    condition = _condition(lab, other)
    verdict.check(condition.get("status") == "False", f"stopped by an admin, reported as {condition}")
    other.run("systemctl", "start", "containerd")
    wait_until(lambda: _condition(lab, other).get("status") == "True", 30, what="ContainerdServing True again")


def _foreign_pod(node: Node) -> Object:
    """A database, say: needs its grace, has a hook of its own, and is none of ours."""
    pod = runtimes.user_pod("foreign", node.name, runtime_class=None, grace=_FOREIGN_GRACE)
    container = pod["spec"]["containers"][0]
    container["command"] = ["/bin/sh", "-c", "trap : TERM; while :; do sleep 1; done"]
    container["lifecycle"] = {"preStop": {"exec": {"command": ["/bin/true"]}}}
    return pod


def _running(lab: Lab, path: str) -> int:
    return sum(1 for pod in lab.observer.items(path) if pod.get("status", {}).get("phase") == "Running")


def _everywhere(lab: Lab, script: str) -> None:
    threads = [threading.Thread(target=node.sh, args=(script,)) for node in lab.nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _unit(node: Node) -> str:
    return node.run("systemctl", "is-active", "containerd", check=False).strip()


def _condition(lab: Lab, node: Node) -> Object:
    item = lab.observer.get(f"{names.NODES}/{node.name}")
    found = [c for c in item["status"]["conditions"] if c["type"] == "ContainerdServing"]
    return found[0] if found else {}
