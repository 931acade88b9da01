"""The real daemon starts, serves CRI and names its handlers exactly where `check` says so, on every shape."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hostconfig_shapes import BROKEN, LOADS
from hostconfig_trees import Tree, write

from reconciler.cri.api import Code, CriError
from reconciler.cri.client import GrpcCri
from reconciler.hostconfig import BinaryDump, HostConfig

DIRECTORY = "/tmp/d"
"""Inside the daemon's own root: its socket is reached through /proc/PID/root."""
STARTED = 30.0
"""Seconds until it has a socket or has ended."""
ANSWER = 4.0
"""Seconds in which CRI serves once there is a socket."""
SHAPES: dict[str, tuple[Tree, tuple[str, ...], str]] = {
    **{name: (about.files, about.releases, about.config) for name, about in LOADS.items() if name != "microk8s"},
    **{name: (files, releases, "") for name, (_, files, releases) in BROKEN.items()},
}


Daemon = subprocess.Popen[bytes]


def ended(daemon: Daemon, within: float) -> bool:
    """Wait so long for its end."""
    try:
        daemon.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


async def answer(socket: Path) -> tuple[str, ...]:
    """The handlers that CRI names. Raises CriError."""
    cri = GrpcCri(str(socket))
    try:
        return tuple(sorted((await cri.status(timeout=ANSWER)).handlers))
    finally:
        cri.close()


def outcome(daemon: Daemon) -> tuple[bool, bool, tuple[str, ...]]:
    """Loads, serves, handlers."""
    socket, started = Path(f"/proc/{daemon.pid}/root{DIRECTORY}/s"), time.monotonic()
    while not ended(daemon, 0.05) and not socket.exists() and time.monotonic() < started + STARTED:
        pass
    until = time.monotonic() + ANSWER
    while not ended(daemon, 0.1) and time.monotonic() < until:
        try:
            return True, True, asyncio.run(answer(socket))
        except CriError as error:
            if error.code is Code.UNIMPLEMENTED:
                break
    return not ended(daemon, 0.1), False, ()


@pytest.mark.parametrize(("shape", "release"), [(name, one) for name in SHAPES for one in SHAPES[name][1]])
def test_loads_serves_and_handlers(shape: str, release: str, containerd: Path, tmp_path: Path) -> None:
    files, _, config = SHAPES[shape]
    write(tmp_path, files)
    (tmp_path / DIRECTORY.lstrip("/")).mkdir(parents=True)
    findings = HostConfig(tmp_path, config, release).check()
    flags = ["--config", config] if config else []
    flags += ["--root", f"{DIRECTORY}/root", "--state", f"{DIRECTORY}/state", "--address", f"{DIRECTORY}/s"]
    with tempfile.TemporaryDirectory(prefix="d") as folder:
        argv = [*BinaryDump(tmp_path, containerd).argv(Path(folder), {}), *flags]
        daemon = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            loads, serves, handlers = outcome(daemon)
        finally:
            daemon.terminate()
            daemon.wait(20)
    assert (loads, serves) == (findings.loads, findings.serves)
    assert handlers == (findings.handlers if findings.serves else ())
