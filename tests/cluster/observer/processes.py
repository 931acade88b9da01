"""What really runs of a pod: processes of this machine, found by cgroup and by their shim's sandbox."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.command import CommandFailed
from tests.cluster.node import Node

_TASKS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"


@dataclass(frozen=True)
class Process:
    pid: int
    exe: str
    command: str
    cgroup: str


def processes() -> list[Process]:
    """All of this machine's, the nodes' included; those that end meanwhile are left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            found.append(
                Process(int(folder.name), str((folder / "exe").readlink()), command, (folder / "cgroup").read_text())
            )
        except OSError:
            continue
    return found


def of_pod(uid: str) -> list[Process]:
    """Processes in a cgroup of the pod `uid`."""
    return [process for process in processes() if f"pod{uid}" in process.cgroup]


def tasks(node: Node, uid: str) -> list[str]:
    """Ids of the tasks (sandbox and containers) that containerd's shims hold for the pod `uid` on `node`."""
    try:
        bundles = list(node.path(_TASKS).iterdir())
    except (OSError, CommandFailed):
        return []
    found = []
    for bundle in bundles:
        try:
            annotations = json.loads((bundle / "config.json").read_text()).get("annotations", {})
        except (OSError, ValueError):
            continue
        if annotations.get("io.kubernetes.cri.sandbox-uid") == uid:
            found.append(bundle.name)
    return found


def shims(node: Node, uid: str) -> list[Process]:
    """Shims that serve the pod `uid` on `node`."""
    ids = tasks(node, uid)
    return [p for p in processes() if "containerd-shim" in p.exe and any(f"-id {task}" in p.command for task in ids)]


def containerd(node: Node) -> int:
    """Process id, here, of the node's containerd; 0 when none runs."""
    parent = node.leader()
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "containerd":
                return int(pid)
        except OSError:
            continue
    return 0
