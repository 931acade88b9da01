"""Rows in which the change holds: a plain one, and starts that take long for a reason of their own."""

from __future__ import annotations

import os
import signal
import time

from tests.cluster import runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import phase_of
from tests.cluster.node import Node
from tests.cluster.observer import journal, processes
from tests.cluster.scenarios.daemons.rounds import Round, payload

_PODS = "/api/v1/namespaces/default/pods"
_META = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
_HELD = 20
"""Seconds for which containerd's metadata stay locked after its stop."""
_KUBELET = 25.0
"""Seconds without CRI from which kubelet may say NotReady."""


def there_and_back(here: Round) -> None:
    """apply → restart → a pod on the handler runs → remove → restart."""
    lab, began, ready = here.lab, time.time(), here.readiness()
    lab.create(payload())
    installed = here.stages("ready", 60)
    lab.wait_ready()
    lab.run_user_pods(here.verdict)
    lab.end_user_pods()
    deleted = time.time()
    lab.delete()
    removed = here.stages("absent", 60)
    lab.wait_gone()
    for node in here.nodes:
        here.measured(node, "install s", installed[node.name])
        here.measured(node, "delete s", removed[node.name])
        here.measured(node, "CRI outage s", here.outage(node, began))
        _one_start_each(here, node, began, deleted)
    here.verdict.check(here.readiness() == ready, f"a node was NotReady: {ready} → {here.readiness()}")


def slow_start(here: Round) -> None:
    """Another process holds containerd's metadata: waited for, and not undone."""
    lab, began, ready = here.lab, time.time(), here.readiness()
    for node in here.nodes:
        node.sh(f"nohup flock {_META} sleep {_HELD} > /dev/null 2>&1 &")
    lab.create(payload())
    here.stages("ready", 90)
    lab.wait_ready()
    for node in here.nodes:
        seconds = here.outage(node, began)
        here.measured(node, "slow start, CRI outage s", seconds)
        here.check(_HELD - 1 <= seconds <= _KUBELET, node, f"metadata locked for {_HELD} s, CRI away for {seconds:.1f}")
        here.check(runtimes.HANDLER in lab.handlers(node), node, "a slow start: ready, but CRI does not serve it")
    hung_shim(here, began)
    here.verdict.check(here.readiness() == ready, f"a node was NotReady: {ready} → {here.readiness()}")


def hung_shim(here: Round, began: float) -> None:
    """The removal of what was installed since `began` waits, and says for which pod; then it goes on by itself."""
    lab, stopped = here.lab, {node.name: _hang(here, node) for node in here.nodes}
    deleted = time.time()
    try:
        lab.delete()
        here.seconds_until(lambda node: here.waits_for(node, f"default/hung-{node.name}"), 30, "the hung shim named")
        for node in here.nodes:
            here.check(lab.probe.serving(node.name), node, "CRI is away for a shim that hangs")
            here.check(not journal.starts(node, deleted), node, "containerd was restarted beside a shim that hangs")
    finally:
        for pid in [pid for pids in stopped.values() for pid in pids]:
            os.kill(pid, signal.SIGKILL)
    gone = here.stages("absent", 60)
    for node in here.nodes:
        here.measured(node, "removed, s after the hung shim was killed", gone[node.name])
        _one_start_each(here, node, began, deleted)
    lab.wait_gone()
    lab.end_user_pods()


def _hang(here: Round, node: Node) -> list[int]:
    """A pod on runc whose shim is stopped; process ids of that shim."""
    name = f"hung-{node.name}"
    here.lab.admin.create(_PODS, runtimes.user_pod(name, node.name, runtime_class=None))
    path = f"{_PODS}/{name}"
    wait_until(lambda: phase_of(here.lab.observer.find(path)) == "Running", 20, what=f"{name} running")
    pids = [shim.pid for shim in processes.shims(node, here.lab.observer.get(path)["metadata"]["uid"])]
    here.check(len(pids) == 1, node, f"the pod {name} has the shims {pids}")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def _one_start_each(here: Round, node: Node, began: float, deleted: float) -> None:
    starts = journal.starts(node, began)
    counts = (sum(s.at < deleted for s in starts), sum(s.at >= deleted for s in starts))
    here.check(counts == (1, 1), node, f"{counts} starts of containerd for the install and the removal")
