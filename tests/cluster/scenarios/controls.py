"""Negative controls: the judge must see what is wrong when something is. Each passes when the judge complains.

And one of the bench itself: what happens on one node is nothing to the other.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.cluster import api as names
from tests.cluster import runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node
from tests.cluster.scenarios import hooks

_AT_ONCE = 100
"""Starts on each node; in one tree of cgroups for both, most of them failed."""


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    _nodes_are_apart(lab, verdict)
    _planted_leftovers(lab, verdict)
    _undo_left_out(lab, verdict)
    _outage_is_seen(lab, verdict)
    _barrier_switched_off(lab, verdict)


def _nodes_are_apart(lab: Lab, verdict: Verdict) -> None:
    """A unit that both nodes start at the same moment, again and again, starts on both: each has its own cgroups."""
    unit = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
    script = f"for i in $(seq {_AT_ONCE}); do systemctl start together || echo failed; done 2>/dev/null"

    def start(node: Node) -> int:
        node.run("sh", "-c", "cat > /run/systemd/system/together.service; systemctl daemon-reload", stdin=unit)
        return node.sh(script).count("failed")

    with ThreadPoolExecutor(len(lab.nodes)) as pool:
        failed = list(pool.map(start, lab.nodes))
    verdict.check(failed == [0] * len(lab.nodes), f"of {_AT_ONCE} starts of a unit failed, by node: {failed}")
    for node in lab.nodes:
        node.sh("rm /run/systemd/system/together.service; systemctl daemon-reload")


def _planted_leftovers(lab: Lab, verdict: Verdict) -> None:
    """A file under /opt, a byte in containerd's configuration, a label: each is found."""
    node = lab.nodes[0]
    (node.root / "opt/planted").write_text("x")
    verdict.check(any("/opt/planted" in text for text in lab.left_behind(settle=0)), "a planted file is not seen")
    (node.root / "opt/planted").unlink()
    config = node.root / "etc/containerd/config.toml"
    before = config.read_bytes()
    config.write_bytes(before + b"\n")
    verdict.check(any("config.toml" in text for text in lab.left_behind(settle=0)), "a changed byte is not seen")
    config.write_bytes(before)
    path, label = f"{names.NODES}/{node.name}", "runtime-reconciler.node-restriction.kubernetes.io/planted"
    lab.admin.patch(path, {"metadata": {"labels": {label: "present"}}})
    verdict.check(any("planted" in text for text in lab.left_behind(settle=0)), "a planted label is not seen")
    lab.admin.patch(path, {"metadata": {"labels": {label: None}}})


def _undo_left_out(lab: Lab, verdict: Verdict) -> None:
    """A payload whose uninstall does nothing: its files are found after the object has gone."""
    runtime = runtimes.full()
    runtime["spec"]["phases"]["uninstall"] = runtimes.phase("true")
    lab.create(runtime)
    lab.wait_ready()
    lab.delete()
    lab.wait_gone()
    left = lab.left_behind(settle=0)
    verdict.check(any("/opt/demo" in text for text in left), f"an undo that was left out is not seen: {left}")
    for node in lab.nodes:
        node.sh("rm -rf /opt/demo /usr/local/bin/containerd-shim-demo-v2")


def _outage_is_seen(lab: Lab, verdict: Verdict) -> None:
    """A restart that is nobody's change is counted, and an outage of two seconds is measured."""
    node, began = lab.nodes[0], time.time()
    node.sh("systemctl stop containerd; sleep 2; systemctl start containerd")
    wait_until(lambda: bool(lab.probe.outages(node.name, began)), 10, what="an outage in the probe's log")
    wait_until(lambda: lab.probe.serving(node.name), 20, what="CRI serving again")
    seconds = max(outage.seconds for outage in lab.probe.outages(node.name, began))
    verdict.check(1.8 <= seconds <= 4.0, f"an outage of 2 s was measured as {seconds:.1f} s")
    verdict.check(lab.restarts(began)[node.name] == 1, f"one restart was counted as {lab.restarts(began)}")


def _barrier_switched_off(lab: Lab, verdict: Verdict) -> None:
    """No agent, hence no barrier and no retried kill: the judge of scenario 2 complains about both of its bounds."""
    seconds, restarts = hooks.without_agents(lab)
    complaints = Verdict(quiet=True)
    hooks.judge(complaints, 5, seconds, restarts)
    verdict.check(len(complaints.failures) == 2, f"without a barrier the judge says only {complaints.failures}")
