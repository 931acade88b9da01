"""Scenario 14: every command of the documentation, as it stands there, on the real cluster."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.cluster import api as names
from tests.cluster import paths, product, runtimes
from tests.cluster.cluster import kubectl
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node
from tests.pages import PAGES, ROOT, Command, Place, commands, manifest

_CODES = {
    "reconciler status": (0, 3, 4),  # all well, in progress, in trouble
    "reconciler explain": (0, 3, 4),
    "reconciler retry": (0, 1),  # 1: nothing to retry
    "reconciler skip": (0, 1),
    "kubectl auth can-i": (0, 1),  # 1: no
    "systemctl status": (0, 3),  # 3: it does not run
}
"""Statuses that say that a command has done what it is for; 0 for the others."""
_TIMEOUT = 60.0
_FORWARDED = 5
"""Seconds that a forwarded port is left open: the command does not end by itself."""
_NO_PREVIOUS = "previous terminated container"
"""In the error of `logs --previous`: the container has never ended."""


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    """NODE, POD and RUNTIME stand for what is there."""
    folder = paths.RUN / "documents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kata.yaml").write_text(manifest(ROOT / "README.md"))  # selects no node of this cluster
    done = 0
    for page in PAGES:
        here = [command for command in commands(page) if command.place in (Place.CLUSTER, Place.HOST)]
        if here:
            _both_runtimes(lab, folder)
        for command in here:
            said = _carry_out(command, lab.nodes[0], folder)
            verdict.check(not said, f"{page.relative_to(ROOT)}: {command.text}: {said}")
        done += len(here)
    verdict.facts["commands"] = [done]
    for item in lab.admin.items(names.NODE_RUNTIMES):
        lab.delete(item["metadata"]["name"])
    lab.wait_gone()
    verdict.check(not lab.left_behind(), f"left behind: {lab.left_behind()}")


def _both_runtimes(lab: Lab, folder: Path) -> None:
    """A page may have deleted them: each begins with the runtime that is ready, and with the README's."""
    for item in lab.admin.items(names.NODE_RUNTIMES):
        if item["metadata"].get("deletionTimestamp"):
            lab.wait_gone(name=item["metadata"]["name"])
    if lab.runtime() is None:
        lab.create(runtimes.full())
    lab.wait_ready()
    kubectl("apply", "-f", str(folder / "kata.yaml"))


def _carry_out(command: Command, node: Node, folder: Path) -> str:
    """What went wrong, empty when nothing did."""
    pod = product.agent_pod(node)["metadata"]["name"]
    text = command.text
    for placeholder, value in {"NODE": node.name, "POD": pod, "RUNTIME": runtimes.NAME, "RESOURCE": "nodes"}.items():
        text = re.sub(rf"\b{placeholder}\b", value, text)
    ours = text.startswith("reconciler")
    if ours and command.place is Place.HOST:
        text = f"{text} --root {node.root}"
    if "port-forward" in text:
        text = f"timeout {_FORWARDED} {text} | grep -m1 Forwarding"
    if command.place is Place.HOST and not ours:
        return _outcome(text, ["nsenter", "-t", str(node.leader()), "-a", "/bin/sh", "-c", text], folder)
    return _outcome(text, ["/bin/sh", "-c", text], folder)


def _outcome(text: str, argv: list[str], folder: Path) -> str:
    path = f"{ROOT / '.venv/bin'}:{paths.KUBECTL.parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "KUBECONFIG": str(paths.RUN / "admin.kubeconfig")}
    try:
        done = subprocess.run(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_TIMEOUT:.0f} s"
    good = next((codes for start, codes in _CODES.items() if text.startswith(start)), (0,))
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    if done.returncode in good or ("--previous" in text and _NO_PREVIOUS in said):
        return ""
    return f"exit {done.returncode}: {said[-500:]}"
