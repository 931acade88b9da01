"""Which releases run where and when; at the end the nodes are made anew, with the daemon of before.

Two releases at a time, one per node, and upwards only: a node goes from one to the next as a package upgrade does
it, under its running pods and its running agent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster import api as names
from tests.cluster import cluster, noderoot, paths, product, productimage, runtimes
from tests.cluster.api import ApiError, Object
from tests.cluster.command import CommandFailed, wait_until
from tests.cluster.containerds import RELEASES, upgrade
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node
from tests.cluster.observer import world
from tests.hosts import containerds

ROUNDS = (("1.6.20", "1.7.34"), ("2.0.11", "2.2.9"), ("2.3.4", "2.3.4"))
"""Releases of the first and the second node."""
IN_SHORT = (("1.7.34", "2.3.4"),)
"""The last of the old kind and the newest; the nodes' own 1.6.20 is what all other scenarios have."""
_EXPECTED = (TimeoutError, CommandFailed, ApiError, OSError, LookupError)


@dataclass(frozen=True)
class Round:
    """What a row gets: the lab, and which node runs what."""

    lab: Lab
    verdict: Verdict
    versions: dict[str, str]

    @property
    def nodes(self) -> list[Node]:
        return self.lab.nodes

    def check(self, holds: object, node: Node, what: str) -> bool:
        return self.verdict.check(holds, f"containerd {self.versions[node.name]}: {what}")

    def measured(self, node: Node, what: str, seconds: float) -> None:
        self.verdict.measured(f"containerd {self.versions[node.name]}: {what}", seconds)

    def seconds_until(self, holds: Callable[[Node], bool], timeout: float, what: str) -> dict[str, float]:
        """Node → seconds from now until it holds there. Raises TimeoutError with the nodes' states."""
        began, found = time.monotonic(), dict[str, float]()

        def everywhere() -> bool:
            for node in self.nodes:
                if node.name not in found and holds(node):
                    found[node.name] = time.monotonic() - began
            return len(found) == len(self.nodes)

        if not wait_until(everywhere, timeout, every=0.05, raises=False):
            states = {node.name: self.lab.state(node) for node in self.nodes if node.name not in found}
            raise TimeoutError(f"{what}: not within {timeout:.0f} s: {states}")
        return found

    def stages(self, stage: str, timeout: float) -> dict[str, float]:
        """Node → seconds from now until it is in `stage`."""
        return self.seconds_until(lambda node: self.lab.stage(node) == stage, timeout, f"every node {stage}")

    def readiness(self) -> dict[str, Object]:
        """Node → its Ready condition without the heartbeat: the same afterwards means that it never changed."""
        return {node.name: self._ready(node) for node in self.nodes}

    def outage(self, node: Node, since: float) -> float:
        """Seconds of the longest outage of CRI since then, as the observer saw it."""
        return max((outage.seconds for outage in self.lab.probe.outages(node.name, since)), default=0.0)

    def waits_for(self, node: Node, cause: str) -> bool:
        """Whether the agent says that its work waits, and names `cause`."""
        report = names.annotation(self.lab.observer.get(f"{names.NODES}/{node.name}"), names.AGENT_REPORT)
        answer = report.get("work", {}).get(runtimes.NAME, {})
        return answer.get("result") == "Waiting" and cause in answer.get("message", "")

    def failure(self, node: Node) -> str:
        """Why the change was undone, as the Node's state has it; "" while it was not."""
        return str((self.lab.state(node).get("error") or {}).get("message", ""))

    def _ready(self, node: Node) -> Object:
        conditions = self.lab.observer.get(f"{names.NODES}/{node.name}")["status"]["conditions"]
        ready = next(c for c in conditions if c["type"] == "Ready")
        return {key: ready[key] for key in ("status", "lastTransitionTime")}


Row = Callable[[Round], None]
_OWN_SHIM = f"nsenter -t 1 -m -- cp -f /usr/bin/{containerds.SHIM} {runtimes.SHIM}"


def payload(*, then: str = "true") -> Object:
    """A runtime with its handler on both nodes; the shim is the release's own: 2.3 starts none of 1.6.

    `then` goes on in the install.
    """
    runtime = runtimes.full()
    runtime["spec"]["phases"]["install"] = runtimes.phase(f"{runtimes.INSTALL}; {_OWN_SHIM}; {then}")
    return runtime


def play(lab: Lab, verdict: Verdict, rows: dict[str, Row], rounds: Sequence[tuple[str, str]]) -> None:
    """Each row in each round; one that fails does not hide the next."""
    before = lab.clean
    try:
        for versions in rounds:
            here = Round(lab, verdict, dict(zip([node.name for node in lab.nodes], versions, strict=True)))
            _upgrade(here)
            for name, row in rows.items():
                _one(here, name, row)
    finally:
        lab.clean = before
        _made_anew(lab)


def _one(here: Round, name: str, row: Row) -> None:
    lab, verdict, began = here.lab, here.verdict, time.time()
    try:
        row(here)
    except _EXPECTED as error:
        verdict.check(False, f"{name} {here.versions}: {type(error).__name__}: {error}")
    left = lab.reset()
    if not verdict.check(not left, f"{name} {here.versions}: left behind: {left}"):
        lab.force_clean()
        _upgrade(here)
    lab.check_pods_gone(began, verdict)
    verdict.measured(f"row {name}: s", time.time() - began)


def _upgrade(here: Round) -> None:
    """The round's releases; the agents, which run on, say so before anything is asked of them."""
    began = time.time()
    everywhere(here.nodes, lambda node: upgrade(node, RELEASES[here.versions[node.name]]))
    for node in here.nodes:
        version = here.versions[node.name]
        known = wait_until(lambda node=node, version=version: version in _reported(here, node), 30, raises=False)
        here.check(known, node, f"the agent still reports {_reported(here, node)} after the upgrade")
    product.refresh()
    here.lab.clean = world.look(here.lab.observer, here.nodes)
    here.verdict.measured("upgrade of both nodes: s", time.time() - began)


def _reported(here: Round, node: Node) -> str:
    item = here.lab.observer.get(f"{names.NODES}/{node.name}")
    return str(names.annotation(item, names.AGENT_REPORT).get("containerd", ""))


def _made_anew(lab: Lab) -> None:
    """The daemon of the beginning: a downgrade has no promise of containerd's, a fresh root needs none."""

    def anew(node: Node) -> None:
        node.destroy()
        node.prepare(noderoot.node_root(), paths.RUN / "images")
        node.start()
        wait_until(lambda: lab.probe.serving(node.name), 60, what=f"{node.name} serves CRI")
        productimage.load(product.archive(), node)
        wait_until(lambda: cluster.ready(node), 90, every=0.5, what=f"{node.name} Ready")

    everywhere(lab.nodes, anew)
    product.refresh()


def everywhere(nodes: list[Node], act: Callable[[Node], Any]) -> None:
    """On all nodes at once. Raises what the first one raised."""
    errors: list[Exception] = []

    def guarded(node: Node) -> None:
        try:
            act(node)
        except Exception as error:  # raised again below, in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
