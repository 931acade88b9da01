"""Paths of a host seen through a directory that stands for its `/`: links never lead out of it."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_META = "*?["
LINKS_MAX = 40
"""The kernel's own limit of links followed in one path."""


class BadPattern(ValueError):
    """A pattern that Go's filepath.Glob refuses (`[` without its end)."""


@dataclass(frozen=True)
class HostRoot:
    """All arguments and answers are absolute paths of the host."""

    root: Path

    def local(self, path: str) -> Path:
        """Where the host's `path` lies for us, links followed inside the root (the last one too)."""
        return self.root / self.real(path).lstrip("/")

    def real(self, path: str) -> str:
        """`path` with every link followed. A link that leads nowhere gives the path it names.

        Raises OSError (ELOOP) when links go round in a circle.
        """
        todo = [part for part in path.split("/") if part][::-1]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                done = done[:-1]
                continue
            here = self.root.joinpath(*done, part)
            if not here.is_symlink():
                done.append(part)
                continue
            links += 1
            if links > LINKS_MAX:
                raise OSError(40, "too many levels of symbolic links", path)
            target = os.readlink(here)
            if target.startswith("/"):
                done = []
            todo.extend(piece for piece in target.split("/")[::-1] if piece)
        return "/" + "/".join(done)

    def exists(self, path: str) -> bool:
        return self.local(path).exists()

    def is_dir(self, path: str) -> bool:
        return self.local(path).is_dir()

    def read(self, path: str) -> bytes:
        """Raises OSError."""
        return self.local(path).read_bytes()

    def matches(self, pattern: str, name: str) -> bool:
        """Go's filepath.Match of one path element. Raises BadPattern."""
        return _matcher(pattern).fullmatch(name) is not None

    def glob(self, pattern: str, overlay: Mapping[str, bytes | None] | None = None) -> list[str]:
        """Go's filepath.Glob: sorted per directory, dotfiles match, links are listed even when they dangle.

        `overlay` (real path → bytes, None: gone) stands in for files on disk; it counts for the last element.
        """
        *parts, last = [part for part in posixpath.normpath(pattern).split("/") if part] or [""]
        folders = ["/"]
        for part in parts:
            folders = self._matches(folders, part)
        if not any(meta in "/".join(parts) for meta in _META):
            folders = ["/" + "/".join(parts)]
        found = [path for path in self._matches(folders, last) if self._there(path, overlay or {})]
        return found if not overlay else self._with(overlay, found, folders, last)

    def _matches(self, folders: list[str], part: str) -> list[str]:
        if not any(meta in part for meta in _META):
            paths = [posixpath.join(folder, part) for folder in folders]
            return [path for path in paths if self._lexists(path)]
        matcher = _matcher(part)
        listed = [(folder, name) for folder in folders for name in self._names(folder)]
        return [posixpath.join(folder, name) for folder, name in listed if matcher.fullmatch(name)]

    def _there(self, path: str, overlay: Mapping[str, bytes | None]) -> bool:
        try:
            return overlay.get(self.real(path), b"") is not None
        except OSError:
            return True  # a link that leads to itself is listed, and fails when it is opened

    def _with(self, overlay: Mapping[str, bytes | None], found: list[str], folders: list[str], last: str) -> list[str]:
        """`found` and what the overlay adds to it."""
        matcher, out = _matcher(last), []
        for folder in folders:
            real = self.real(folder)
            here = {path for path in found if posixpath.dirname(path) == folder}
            for path, data in overlay.items():
                name = posixpath.basename(path)
                if data is not None and posixpath.dirname(path) == real and matcher.fullmatch(name):
                    here.add(posixpath.join(folder, name))
            out += sorted(here)
        return out

    def _lexists(self, path: str) -> bool:
        folder, name = posixpath.split(path)
        try:
            return os.path.lexists(self.local(folder) / name)
        except OSError:
            return False

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.local(folder)))
        except OSError:
            return []


def _matcher(part: str) -> re.Pattern[str]:
    """Go's filepath.Match of one path element, as a regular expression. Raises BadPattern."""
    out, at = "", 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            out += ".*"
        elif char == "?":
            out += "."
        elif char == "\\" and at < len(part):
            out += re.escape(part[at])
            at += 1
        elif char == "[":
            end = part.find("]", at + 1)
            if end < 0:
                raise BadPattern(f"syntax error in pattern {part!r}")
            out += "[" + part[at:end] + "]"
            at = end + 1
        else:
            out += re.escape(char)
    return re.compile(out, re.DOTALL)
