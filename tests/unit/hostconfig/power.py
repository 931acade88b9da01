"""What a disk holds after its power was cut, by the promises of POSIX and by none else.

A file's bytes are safe once it was fsynced, its name once its directory was. What was not may be there, or not: `cut`
loses all bytes, and the names that it is told to. Directories themselves count as safe when they are made: a journal
keeps the order of names on the filesystems that hosts have, so a later fsync in them says so.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class Platter:
    """The safe state of everything below `root`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._bytes: dict[int, bytes] = {}
        """By inode."""
        self._names: dict[Path, dict[str, int]] = {}
        """Files of each directory."""
        self._held: list[int] = []
        """Open handles: the number of an inode that is safe must not be given to another file."""
        self.settle()
        monkeypatch.setattr(os, "fsync", self._fsync)

    def settle(self) -> None:
        """All that is there is safe now, as after minutes of quiet."""
        for handle in self._held:
            os.close(handle)
        self._held, self._bytes, self._names = [], {}, {}
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            self._names[folder] = _files(folder)
            for name, inode in self._names[folder].items():
                self._keep(inode, folder / name)

    def cut(self, *, names_survive: tuple[str, ...]) -> None:
        """What was not synced is lost: bytes always, names but for those below these directories of the root."""
        folders = [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]
        kept = {
            folder / name: self._bytes.get(inode, b"")
            for folder in folders
            for name, inode in self._after(folder, names_survive).items()
        }
        for folder in folders:
            for name in _files(folder):
                (folder / name).unlink()
        for path, data in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        self.settle()

    def _after(self, folder: Path, names_survive: tuple[str, ...]) -> dict[str, int]:
        inside = folder.relative_to(self.root).parts[:1]
        return _files(folder) if inside and inside[0] in names_survive else self._names.get(folder, {})

    def _fsync(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = _files(path)
        else:
            self._keep(status.st_ino, Path(f"/proc/self/fd/{handle}"))

    def _keep(self, inode: int, path: Path) -> None:
        if inode not in self._bytes:
            self._held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._bytes[inode] = path.read_bytes()


def _files(folder: Path) -> dict[str, int]:
    """Name → inode of the files in it."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries if entry.is_file(follow_symlinks=False)}
