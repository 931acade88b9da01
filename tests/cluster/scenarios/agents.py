"""Scenario 6, after the controller: the agent, killed at each step of a change, also while CRI is down for good."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable

from tests.cluster import product, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node
from tests.cluster.observer import processes
from tests.cluster.scenarios import kills

Reached = Callable[[], bool]
_LOOK = 0.001
_SEEN_WITHIN = 60.0
BACK = 75.0
"""Seconds until the host has undone what its dead agent left: 45 of the dead-man switch, and a start."""
DROP_INS = "etc/systemd/system/containerd.service.d"
_REFUSAL = "[Service]\nExecStartPre=/bin/sh -c '! grep -rq runtimes.*demo /etc/containerd'\n"


def _journal_written(node: Node) -> Reached:
    return lambda: _pending(node)


def _file_written(node: Node) -> Reached:
    path = node.root / "etc/containerd/config.toml"
    before = path.read_bytes()
    return lambda: path.read_bytes() != before


def _daemon_stopped(node: Node) -> Reached:
    before = processes.containerd(node)
    return lambda: processes.containerd(node) != before


def _daemon_started(node: Node) -> Reached:
    """The new process runs, and the journal cannot say so yet."""
    before = processes.containerd(node)
    return lambda: processes.containerd(node) not in (0, before)


def _change_proven(node: Node) -> Reached:
    """The journal is closed, and nothing is reported yet."""
    begun: list[bool] = []

    def reached() -> bool:
        if not begun:
            begun.extend([True] if _pending(node) else [])
            return False
        return not _pending(node)

    return reached


_MOMENTS: dict[str, Callable[[Node], Reached]] = {
    "the journal is written": _journal_written,
    "the file is written": _file_written,
    "containerd is down": _daemon_stopped,
    "containerd has started": _daemon_started,
    "the change is proven": _change_proven,
}


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    kills.run(lab, verdict, loops)
    for moment in _MOMENTS:
        _killed_at(lab, verdict, moment)
    _killed_on_a_broken_configuration(lab, verdict)


def _killed_at(lab: Lab, verdict: Verdict, moment: str) -> None:
    """Both agents, in the change of the install and in that of the uninstall: one restart each, and clean."""
    product.refresh()
    what, began = f"agent killed when {moment}", time.time()
    with Killers(lab, moment) as killers:
        lab.create(runtimes.full())
        killers.wait(verdict, f"{what} (install)")
    verdict.measured("agent killed: install s", lab.wait_ready(kills.CLEAN))
    for node in lab.nodes:
        verdict.check(runtimes.HANDLER in lab.handlers(node), f"{what}: said to be ready, but CRI does not serve it")
    product.refresh()
    deleted = time.time()
    with Killers(lab, moment) as killers:
        lab.delete()
        killers.wait(verdict, f"{what} (uninstall)")
    verdict.measured("agent killed: uninstall s", lab.wait_gone(kills.CLEAN))
    left = lab.left_behind()
    verdict.check(not left, f"{what}: left behind: {left}")
    kills.check_restarts(lab, verdict, what, began, deleted)
    lab.check_pods_gone(began, verdict)


def _killed_on_a_broken_configuration(lab: Lab, verdict: Verdict) -> None:
    """containerd refuses our change and its agent dies while it is down: no kubelet can start that agent again."""
    node, other = lab.nodes
    product.refresh()
    refuse(node, True)
    try:
        with Killers(lab, "containerd is down", nodes=[node]) as killers:
            lab.create(runtimes.full())
            killers.wait(verdict, "agent killed on a configuration that does not start")
        killed = time.time()
        wait_until(lambda: not lab.probe.serving(node.name), 10, what=f"CRI of {node.name} down")
        back = wait_until(lambda: lab.probe.serving(node.name), BACK, raises=False)
        seconds = time.time() - killed
        verdict.measured("agent killed on a broken configuration: serving again after s", seconds)
        verdict.check(back, f"{node.name} does not serve {seconds:.0f} s after its agent was killed")
        wait_until(lambda: lab.stage(node) == "failed", 90, every=0.2, what=f"{node.name} failed")
        verdict.check(lab.probe.serving(node.name), "failed, and containerd does not serve")
        verdict.check("runc" in lab.handlers(node), f"failed, and CRI serves {lab.served(node)}")
        wait_until(lambda: lab.stage(other) == "ready", 60, what=f"{other.name} ready")
    finally:
        refuse(node, False)
    lab.delete()
    lab.wait_gone(kills.CLEAN)
    left = lab.left_behind()
    verdict.check(not left, f"agent killed on a broken configuration: left behind: {left}")


def refuse(node: Node, on: bool) -> None:
    """A unit that does not start while our handler is in the configuration."""
    drop_in(node, _REFUSAL if on else None)


def drop_in(node: Node, text: str | None) -> None:
    """One more piece of containerd's unit; None takes it away."""
    path = node.root / DROP_INS / "50-test.conf"
    if text is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    else:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    node.run("systemctl", "daemon-reload")


def _pending(node: Node) -> bool:
    try:
        text = (node.root / "var/lib/runtime-reconciler/journal.json").read_text()
        return bool(json.loads(text).get("pending"))
    except (OSError, ValueError):
        return False


class Killers:
    """A thread per node that kills its agent as soon as `moment` is reached there."""

    def __init__(self, lab: Lab, moment: str, *, nodes: list[Node] | None = None) -> None:
        self._moment = moment
        self._hit: dict[str, bool] = {}
        self._threads = []
        for node in nodes or lab.nodes:
            reached, victims = _MOMENTS[moment](node), kills.pids(product.agent_pod(node))
            self._hit[node.name] = False
            self._threads.append(threading.Thread(target=self._watch, args=(node.name, reached, victims)))

    def __enter__(self) -> Killers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def wait(self, verdict: Verdict, what: str) -> None:
        """Until each agent was killed; a moment that never came is a failure of the scenario."""
        for thread in self._threads:
            thread.join()
        for name, hit in self._hit.items():
            verdict.check(hit, f"{what}: {name}: the moment was not seen")

    def _watch(self, name: str, reached: Reached, victims: list[int]) -> None:
        until = time.monotonic() + _SEEN_WITHIN
        while not reached():
            if time.monotonic() > until:
                return
            time.sleep(_LOOK)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self._hit[name] = bool(victims)
