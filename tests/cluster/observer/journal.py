"""What systemd did, from the nodes' journals, read from outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.cluster.command import CommandFailed, run
from tests.cluster.node import Node

_STARTING = "7d4958e842da4a758f6c1cdc7b36dcc5"
"""MESSAGE_ID of systemd's "Starting …": also of starts that fail."""
_LAST_WORDS = ("containerd: ", "panic: ")


@dataclass(frozen=True)
class Start:
    """One start of a unit."""

    at: float
    invocation: str


def starts(node: Node, since: float, unit: str = "containerd.service") -> list[Start]:
    """Starts of `unit` after `since` (wall clock), oldest first; readable while the node is off."""
    entries = _entries(node, f"--since=@{since:.6f}", f"UNIT={unit}", f"MESSAGE_ID={_STARTING}")
    return [Start(int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry.get("INVOCATION_ID", "")) for entry in entries]


def last_words(node: Node) -> str:
    """What containerd said last before it ended: why it does not start. Empty when there is nothing."""
    said = _entries(node, "-n", "300", "_COMM=containerd", "_SYSTEMD_UNIT=containerd.service")
    lines = [str(entry["MESSAGE"]) for entry in said]
    return next((line for line in reversed(lines) if line.startswith(_LAST_WORDS)), lines[-1] if lines else "")


def _entries(node: Node, *words: str) -> list[dict[str, Any]]:
    """Raises CommandFailed while a running node does not write to its disk: an empty answer would say nothing."""
    if node.running and not node.path("/run/systemd/journal/flushed").exists():
        raise CommandFailed(f"{node.name}: its journal is still in memory: systemd-journal-flush has not run")
    argv = ["journalctl", "-D", str(node.root / "var/log/journal"), "--no-pager", "-o", "json"]
    return [json.loads(line) for line in run([*argv, *words]).splitlines() if line.startswith("{")]
