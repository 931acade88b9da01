"""Finds the containerd of this host: its unit's command line, the binary that will start, its version."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from reconciler.systemd.api import Systemd

_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+)\b")
ASK = 10.0
"""Seconds that `containerd --version` may take."""


class NotFoundHere(Exception):
    """There is no containerd that this agent can work with; the message says what to do."""


@dataclass(frozen=True)
class Found:
    binary: str
    """Path on the host."""
    config: str
    """`--config`, "" for the default."""
    version: str


async def find(systemd: Systemd, unit: str, host: Path) -> Found:
    """Raises NotFoundHere, SystemdError."""
    state = await systemd.unit(unit)
    if state.load_state != "loaded" or not state.exec_start:
        raise NotFoundHere(f"unit {unit} is {state.load_state}: only a containerd run by systemd is supported")
    binary, config = state.exec_start[0], _config(state.exec_start)
    return Found(binary, config, await _version(binary, host))


def _config(argv: tuple[str, ...]) -> str:
    for place, word in enumerate(argv):
        if word in ("--config", "-c"):
            return argv[place + 1] if place + 1 < len(argv) else ""
        for prefix in ("--config=", "-c="):
            if word.startswith(prefix):
                return word.removeprefix(prefix)
    return ""


async def _version(binary: str, host: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        "chroot", str(host), binary, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(ASK):
            out, error = await process.communicate()
    except TimeoutError as late:
        process.kill()
        await process.wait()
        raise NotFoundHere(f"{binary} --version does not answer") from late
    found = _VERSION.search(out.decode(errors="replace"))
    if found is None:
        raise NotFoundHere(
            f"{binary} --version: {error.decode(errors='replace').strip() or 'no version in its answer'}"
        )
    return found[1]
