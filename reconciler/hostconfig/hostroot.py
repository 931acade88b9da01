"""Paths of a host seen through a directory that stands for its `/`: links never lead out of it."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

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

    def glob(self, pattern: str) -> list[str]:
        """Go's filepath.Glob: sorted per directory, dotfiles match, links are listed even when they dangle."""
        found = ["/"]
        parts = [part for part in posixpath.normpath(pattern).split("/") if part]
        for part in parts:
            if not any(meta in part for meta in "*?["):
                found = [posixpath.join(base, part) for base in found if self._lexists(posixpath.join(base, part))]
                continue
            matcher = _matcher(part)
            listed = [(base, name) for base in found for name in self._names(base)]
            found = [posixpath.join(base, name) for base, name in listed if matcher.fullmatch(name)]
        return found

    def _lexists(self, path: str) -> bool:
        folder, name = posixpath.split(path)
        return os.path.lexists(self.local(folder) / name)

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
