"""What a simulated container does, written in the arguments of its container (`seconds=0.5`, `exit=1`, …)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

IMAGE = "sim/payload"
"""Images that begin so are known; all others count as one that cannot be pulled."""
KILLED = 137
"""Exit code after SIGKILL."""
TERMINATED = 143
"""Exit code after SIGTERM."""
MISSING = 1
"""Exit code when a file that it needs is not there."""


@dataclass(frozen=True)
class Behaviour:
    """Unknown arguments are ignored, so that a manifest for real nodes also runs here."""

    seconds: float = 0.3
    """Until it ends by itself."""
    exit_code: int = 0
    hang: bool = False
    """Runs until it is killed."""
    ignores_term: bool = False
    restarts: int = 0
    """How often it restarts containerd in the middle of its work."""
    restarts_kubelet: bool = False
    drops: tuple[str, ...] = ()
    """Files that it writes on the host."""
    takes: tuple[str, ...] = ()
    """Files that it removes from the host."""
    appends: tuple[str, ...] = ()
    """`PATH:TEXT`: text that it appends to a file on the host, as careless installers do."""
    needs: str = ""
    """A file of the host without which it fails."""
    waits_for: str = ""
    """A file of the host without which it hangs."""
    label: tuple[str, str] | None = None
    """Node label that says that it is done."""
    again: float = 0.0
    """Seconds after which it says so once more; 0: it does not."""
    oom: bool = False
    """Killed for want of memory in the middle of its work."""
    log: str = ""
    """What it has written to its log when it fails."""
    hook_restarts: bool = False
    """Its preStop hook restarts containerd, whatever the manifest says."""


class Host(Protocol):
    """What a privileged payload can do to its node."""

    root: Path

    async def restart_containerd(self, initiator: str) -> None: ...
    async def restart_kubelet(self) -> None: ...
    async def label(self, key: str, value: str) -> None: ...


def parse(arguments: Iterable[str]) -> Behaviour:
    """Raises ValueError on a number that cannot be read."""
    behaviour = Behaviour()
    for argument in arguments:
        key, _, value = argument.partition("=")
        match key:
            case "seconds":
                behaviour = replace(behaviour, seconds=float(value))
            case "exit":
                behaviour = replace(behaviour, exit_code=int(value))
            case "hang":
                behaviour = replace(behaviour, hang=True)
            case "ignore-term":
                behaviour = replace(behaviour, ignores_term=True)
            case "restart":
                behaviour = replace(behaviour, restarts=int(value or "1"))
            case "restart-kubelet":
                behaviour = replace(behaviour, restarts_kubelet=True)
            case "drop":
                behaviour = replace(behaviour, drops=(*behaviour.drops, value))
            case "take":
                behaviour = replace(behaviour, takes=(*behaviour.takes, value))
            case "append":
                behaviour = replace(behaviour, appends=(*behaviour.appends, value))
            case "needs":
                behaviour = replace(behaviour, needs=value)
            case "waits-for":
                behaviour = replace(behaviour, waits_for=value)
            case "label":
                name, _, text = value.partition("=")
                behaviour = replace(behaviour, label=(name, text))
    return behaviour


async def run(behaviour: Behaviour, host: Host) -> int:
    """Do it; the exit code."""
    await asyncio.sleep(behaviour.seconds / 2)
    if behaviour.needs and not (host.root / behaviour.needs.lstrip("/")).exists():
        return MISSING
    if behaviour.oom:
        return KILLED
    if behaviour.waits_for and not (host.root / behaviour.waits_for.lstrip("/")).exists():
        await asyncio.Event().wait()
    for path in behaviour.drops:
        target = host.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"#!/bin/sh\n")
    for path in behaviour.takes:
        _remove(host.root, path)
    for entry in behaviour.appends:
        path, _, text = entry.partition(":")
        with (host.root / path.lstrip("/")).open("a") as file:
            file.write(text)
    for _ in range(behaviour.restarts):
        await host.restart_containerd("payload")
    if behaviour.restarts_kubelet:
        await host.restart_kubelet()
    if behaviour.label is not None:
        await host.label(*behaviour.label)
    await asyncio.sleep(behaviour.seconds / 2)
    if behaviour.again and behaviour.label is not None:
        await asyncio.sleep(behaviour.again)
        await host.label(*behaviour.label)
    if behaviour.hang:
        await asyncio.Event().wait()
    return behaviour.exit_code


def _remove(root: Path, path: str) -> None:
    """The file, and the directories above it that are empty then, but for those of the host itself."""
    target = root / path.lstrip("/")
    target.unlink(missing_ok=True)
    for parent in target.parents:
        if parent.parent == root:
            return
        if parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
