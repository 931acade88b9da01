"""Processes of the host as Linux shows them: `Processes` of discovery on `/proc` (the pod needs hostPID)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from pathlib import Path

from reconciler.hostconfig.discovery import Process
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused

ASK = 10.0
"""Seconds that `containerd --version` may take."""
_ASK_BELOW = """
import os, sys
root, binary = sys.argv[1:]
if root != "/":
    os.chroot(root)
os.chdir("/")
os.execv(binary, ["containerd", "--version"])
"""
"""argv[0] matters: on k3s one file is many programs."""
_UNIT = re.compile(r"([^/\n]+\.service)(?=/|$)", re.MULTILINE)
_LISTENS = "00010000"
"""`__SO_ACCEPTCON` in the flags of /proc/net/unix."""


class LinuxProcesses:
    """`proc` is where the host's processes are seen; process 1 is in its network namespace."""

    def __init__(self, host: HostRoot, proc: Path = Path("/proc")) -> None:
        self._host, self._proc = host, proc

    def owner(self, socket: str) -> Process | None:
        """The listener of `socket`, by the inode that one of its files has. Blocks on /proc."""
        inodes = self._listening({socket, self._host.real(socket), socket.replace("/run/", "/var/run/", 1)})
        wanted = {f"socket:[{inode}]" for inode in inodes}
        for folder in sorted(self._proc.glob("[0-9]*"), key=lambda path: int(path.name)):
            if wanted & self._files(folder):
                return self._process(folder)
        return None

    def same_file(self, pid: int, binary: str) -> bool:
        """False as well when either cannot be looked at."""
        try:
            return os.path.samefile(self._proc / str(pid) / "exe", self._host.local(binary))
        except OSError:
            return False

    async def version(self, binary: str) -> str:
        """Asked below the host's root. Raises Refused(UnsupportedVersion)."""
        argv = [sys.executable, "-I", "-c", _ASK_BELOW, str(self._host.root), binary]
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(ASK):
                out, error = await process.communicate()
        except TimeoutError as late:
            process.kill()
            await process.wait()
            raise Refused(Code.UNSUPPORTED_VERSION, f"{binary} --version does not answer within {ASK:.0f} s") from late
        words = out.decode(errors="replace").split()
        if process.returncode or len(words) < 3:
            said = error.decode(errors="replace").strip()[-300:] or "no version in its answer"
            raise Refused(Code.UNSUPPORTED_VERSION, f"{binary} --version: {said}")
        return words[2]

    def _listening(self, names: set[str]) -> set[str]:
        """Inodes of the sockets with one of `names` that are listened on."""
        found = set()
        for line in self._text(self._proc / "1/net/unix").splitlines():
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[3] == _LISTENS and fields[7] in names:
                found.add(fields[6])
        return found

    def _files(self, folder: Path) -> set[str]:
        """What the process has open; a file that it closes meanwhile is none."""
        found = set()
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder / "fd"):
                with contextlib.suppress(OSError):
                    found.add(os.readlink(folder / "fd" / entry))
        return found

    def _process(self, folder: Path) -> Process:
        argv = tuple(word for word in self._text(folder / "cmdline").split("\0") if word)
        try:
            exe = os.readlink(folder / "exe")
        except OSError:
            exe = ""
        units = _UNIT.findall(self._text(folder / "cgroup"))
        return Process(int(folder.name), argv, exe, units[-1] if units else "")

    @staticmethod
    def _text(path: Path) -> str:
        try:
            return path.read_bytes().decode(errors="replace")
        except OSError:
            return ""
