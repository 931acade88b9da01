"""Discovery on the real /proc: the process that listens on a socket, and the version that a binary names."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from reconciler.hostconfig import HostRoot, LinuxProcesses


def test_the_listener_is_found_and_not_its_clients(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    processes = LinuxProcesses(HostRoot(Path("/")))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        assert processes.owner(path) is None
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            owner = processes.owner(path)
        assert owner is not None and owner.pid == os.getpid()
        assert processes.same_file(owner.pid, os.path.realpath(sys.executable))
        assert not processes.same_file(owner.pid, "/bin/sh")


async def test_every_release_names_its_version(release: str, containerd: Path) -> None:
    version = await LinuxProcesses(HostRoot(Path("/"))).version(str(containerd))
    assert version.lstrip("v").startswith(release)
