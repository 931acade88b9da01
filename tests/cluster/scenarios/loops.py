"""Scenario 1: install, ready, a pod on the new handler, delete, all gone; again and again."""

from __future__ import annotations

import time

from tests.cluster import runtimes
from tests.cluster.api import Object
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import CONTAINERD_CONFIG, Node
from tests.cluster.observer import audit, journal

_EDIT_EVERY = 4
_NODE_PATCHES = 10
_OTHER_WRITES = 20
_OUTAGE = 3.0


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    """The floor first, then `loops` of the full payload, the rollout node by node once, and quiet at the end."""
    loop(lab, verdict, runtimes.no_op(), figure="no-op", goals=(4.0, 6.0))
    for number in range(loops):
        loop(lab, verdict, runtimes.full(), figure="full", goals=(12.0, 10.0), edit=number % _EDIT_EVERY == 1)
    loop(lab, verdict, runtimes.four_phases(), figure="four phases", goals=(12.0, 10.0), budget=False)
    one_by_one = {"maxUnavailable": 1, "canary": {"count": 1}}
    loop(lab, verdict, runtimes.full(rollout=one_by_one), figure="one node after the other", goals=(60.0, 60.0))
    _quiet(lab, verdict)


def loop(
    lab: Lab,
    verdict: Verdict,
    runtime: Object,
    *,
    figure: str,
    goals: tuple[float, float],
    edit: bool = False,
    budget: bool = True,
) -> None:
    """One install and uninstall, with everything that must hold.

    `goals` are seconds for each half. Without `budget` the writes are counted and not judged: each further phase
    costs two patches more, and the bound is for a payload with install and uninstall.
    """
    began, mark = time.time(), audit.position()
    handlers = bool(runtime["spec"]["handlers"])
    if handlers:
        _check_refused(lab, verdict, "before the install")
    started = time.time()
    lab.create(runtime)
    install = lab.wait_ready(60)
    verdict.measured(f"{figure}: install s", install)
    verdict.check(install <= goals[0], f"{figure}: install took {install:.1f} s, at most {goals[0]:.0f}")
    if handlers:
        _use(lab, verdict)
    changed = time.time()
    for node in lab.nodes if edit else ():
        _edit(node)
    deleted = time.time()
    lab.delete()
    uninstall = lab.wait_gone(60)
    left = [text for text in lab.left_behind(settle=0) if not (edit and "config.toml" in text)]
    verdict.measured(f"{figure}: uninstall s", uninstall)
    verdict.check(uninstall <= goals[1], f"{figure}: uninstall took {uninstall:.1f} s, at most {goals[1]:.0f}")
    verdict.check(not left, f"{figure}: left behind: {left}")
    for node in lab.nodes if edit else ():
        _check_edit(node, verdict)
    if handlers:
        _check_refused(lab, verdict, "after the delete")
        _check_restarts(lab, verdict, started, deleted)
    _check_outages(lab, verdict, began)
    lab.check_pods_gone(began, verdict)
    _check_writes(lab, verdict, mark, figure, budget=budget)
    verdict.measured(f"{figure}: user pods s", changed - started - install)


def _use(lab: Lab, verdict: Verdict) -> None:
    for node in lab.nodes:
        served = lab.handlers(node)
        verdict.check(
            {"runc", runtimes.HANDLER} <= set(served), f"{node.name}: said to be ready, but CRI serves {served}"
        )
    lab.run_user_pods(verdict)
    lab.end_user_pods()


def _check_refused(lab: Lab, verdict: Verdict, when: str) -> None:
    for node in lab.nodes:
        verdict.check(lab.refused(node), f"{node.name}: {when} a sandbox of the handler is not refused")


def _check_restarts(lab: Lab, verdict: Verdict, started: float, deleted: float) -> None:
    for node in lab.nodes:
        starts = journal.starts(node, started)
        first, second = [s for s in starts if s.at < deleted], [s for s in starts if s.at >= deleted]
        verdict.check(len(first) == 1, f"{node.name}: {len(first)} starts of containerd for the install")
        verdict.check(len(second) == 1, f"{node.name}: {len(second)} starts of containerd for the uninstall")


def _check_outages(lab: Lab, verdict: Verdict, since: float) -> None:
    for node in lab.nodes:
        for outage in lab.probe.outages(node.name, since):
            verdict.measured("CRI outage s", outage.seconds)
            verdict.check(outage.seconds <= _OUTAGE, f"{node.name}: CRI away for {outage.seconds:.1f} s ({outage.why})")


def _check_writes(lab: Lab, verdict: Verdict, mark: int, figure: str, *, budget: bool) -> None:
    """Node patches and other writes, each per node and loop."""
    counts = audit.counted(audit.writes(mark))
    patches = sum(n for kind, n in counts.items() if kind.split()[1].startswith("nodes")) / len(lab.nodes)
    others = sum(n for kind, n in counts.items() if not kind.split()[1].startswith("nodes")) / len(lab.nodes)
    verdict.measured(f"{figure}: Node patches per node", patches)
    verdict.measured(f"{figure}: other writes per node", others)
    verdict.facts[f"{figure}: writes of the last loop"] = counts
    if not budget:
        return
    verdict.check(patches <= _NODE_PATCHES, f"{figure}: {patches:.1f} Node patches per node and loop: {counts}")
    verdict.check(others <= _OTHER_WRITES, f"{figure}: {others:.1f} other writes per node and loop: {counts}")


def _quiet(lab: Lab, verdict: Verdict, seconds: float = 10.0) -> None:
    time.sleep(3)
    mark = audit.position()
    time.sleep(seconds)
    counts = audit.counted(audit.writes(mark))
    verdict.check(not counts, f"writes while nothing changes: {counts}")


_COMMENT = "# somebody's note\n"
_KEY = "oom_score = -500\n"


def _edit(node: Node) -> None:
    """A comment and a key of somebody else, beside what the product wrote."""
    path = node.root / "etc/containerd/config.toml"
    text = path.read_text()
    path.write_text(text.replace("version = 2\n", f"version = 2\n{_COMMENT}{_KEY}", 1))


def _check_edit(node: Node, verdict: Verdict) -> None:
    """Both survive and nothing else is different; then they are taken out again."""
    path = node.root / "etc/containerd/config.toml"
    expected = CONTAINERD_CONFIG.replace("version = 2\n", f"version = 2\n{_COMMENT}{_KEY}", 1)
    found = path.read_text()
    verdict.check(found == expected, f"{node.name}: after somebody's edit config.toml is {found!r}")
    path.write_text(CONTAINERD_CONFIG)
