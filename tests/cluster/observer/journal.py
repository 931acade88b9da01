"""What systemd did, from the nodes' journals, read from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.cluster.command import run
from tests.cluster.node import Node

_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
"""MESSAGE_ID of systemd's "Starting …": also of starts that fail."""


@dataclass(frozen=True)
class Start:
    """One start of a unit."""

    at: float
    invocation: str


def starts(node: Node, since: float, unit: str = "containerd.service") -> list[Start]:
    """Starts of `unit` after `since` (wall clock), oldest first; readable while the node is off."""
    argv = ["journalctl", "-D", str(node.root / "var/log/journal"), "--no-pager", "-o", "json"]
    lines = run([*argv, f"--since=@{since:.6f}", f"UNIT={unit}", f"MESSAGE_ID={_STARTING}"]).splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [Start(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry.get("INVOCATION_ID", "")) for entry in entries]
