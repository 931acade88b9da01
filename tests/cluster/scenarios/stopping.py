"""Scenario 15: `reconciler stop` in the middle of a rollout, by the command line, with the rights that are shipped."""

from __future__ import annotations

import os
import subprocess
import time

from tests.cluster import paths, runtimes
from tests.cluster.command import wait_until
from tests.cluster.lab import Lab, Verdict
from tests.cluster.observer import audit

_PAYLOAD = 4
"""Seconds that the payload takes: the stop comes while it runs."""
_WITHIN = 1.0
"""Seconds after which nothing new begins."""
_WATCHED = 8.0
"""Seconds that a stop is watched: the payload ends in them, and the next stage would begin."""
_STATE = "state.runtime-reconciler.io/demo"


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    """Stopped in pre-install on both nodes, so that install waits; and in uninstall, so that post-uninstall does."""
    began = time.time()
    demo = runtimes.four_phases()
    demo["spec"]["phases"]["preInstall"] = runtimes.phase(f"sleep {_PAYLOAD}")
    demo["spec"]["phases"]["uninstall"] = runtimes.phase(f"sleep {_PAYLOAD}; {runtimes.UNINSTALL}")
    lab.create(demo)
    wait_until(lambda: all(lab.phase_pods(node, began) for node in lab.nodes), 20, what="a phase pod on each node")
    stopped = _command("stop", "--reason", "a scenario")
    mark = audit.position()
    time.sleep(_WATCHED)  # nothing can be awaited: what must not happen is looked for
    _nothing_begins(verdict, mark, stopped + _WITHIN)
    conditions = {one["type"]: one for one in (lab.runtime() or {}).get("status", {}).get("conditions", [])}
    reason = conditions.get("Progressing", {}).get("reason")
    verdict.check(reason == "Stopped", f"condition Progressing has reason {reason} while everything is stopped")
    verdict.check(all(lab.stage(node) == "pre-install" for node in lab.nodes), "a node went on while stopped")
    verdict.check(not any(lab.restarts(began).values()), "containerd was restarted while everything was stopped")
    resumed = _command("resume")
    verdict.measured("ready after resume: s", lab.wait_ready())
    verdict.check(lab.restarts(resumed) == {node.name: 1 for node in lab.nodes}, f"restarts: {lab.restarts(resumed)}")
    lab.delete()
    lab.wait_stage("uninstall")
    stopped = _command("stop")
    mark = audit.position()
    time.sleep(_WATCHED)
    _nothing_begins(verdict, mark, stopped + _WITHIN)
    stages = [lab.stage(node) for node in lab.nodes]
    verdict.check("post-uninstall" not in stages and "absent" not in stages, f"a node went on while stopped: {stages}")
    _command("resume")
    verdict.measured("gone after resume: s", lab.wait_gone())
    verdict.check(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def _nothing_begins(verdict: Verdict, mark: int, since: float) -> None:
    made = [one for one in audit.writes(mark) if (one.verb, one.resource) == ("create", "pods") and one.at > since]
    verdict.check(not made, f"{len(made)} pods were made after a stop")
    moved = [
        one for one in audit.writes(mark) if one.resource == "nodes" and one.at > since and _STATE in str(one.body)
    ]
    verdict.check(not moved, f"{len(moved)} transitions after a stop: {[one.name for one in moved]}")


def _command(*words: str) -> float:
    """Carry out `reconciler WORDS` as an administrator; when it was done. Raises CalledProcessError."""
    env = {**os.environ, "KUBECONFIG": str(paths.RUN / "admin.kubeconfig")}
    program = paths.PROJECT / ".venv/bin/reconciler"
    subprocess.run([program, *words], env=env, capture_output=True, timeout=30, check=True)
    return time.time()
