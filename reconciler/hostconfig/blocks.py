"""Our blocks in other people's files: found, added, replaced and taken out byte by byte (design 6.5).

A block lies between two comment lines that name its owner, so that it is found without any state of
ours. A line end that had to be added before the first block is noted in the block's first line and
goes with it: `remove(add(x)) == x`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

RUNC_OWNER = "+runc"
"""Owner of the `runc` table that we write only because ours would hide the built-in one."""
_CREATED = b"# runtime-reconciler: this file was made by runtime-reconciler\n"
CREATED_TEMPLATE = _CREATED + b'{{ template "base" . }}\n'
"""All that a template of k3s or rke2 made by us holds besides blocks: their own one."""

_BEGIN = re.compile(
    rb"^[ \t]*# runtime-reconciler: begin (?P<owner>[^ \t\r\n]+)(?P<added> \(line end added\))?[ \t]*\r?\n",
    re.MULTILINE,
)
_HEADER = re.compile(rb"^[ \t]*\[[^\[\]]+\][ \t]*(#.*)?\r?\n?$")
_END = r"^[ \t]*# runtime-reconciler: end {owner}[ \t]*(?:\r?\n|\Z)"


@dataclass(frozen=True)
class Block:
    """Offsets of one block: `start` to `end` is all of it, `body_start` to `body_end` what it holds."""

    owner: str
    start: int
    body_start: int
    body_end: int
    end: int
    line_end_added: bool

    def body(self, data: bytes) -> bytes:
        return data[self.body_start : self.body_end]


def created(version: int) -> bytes:
    """All that a main file made by us holds besides blocks and our import."""
    return _CREATED + b"version = %d\n" % version


def is_created(data: bytes | None) -> bool:
    """True for a main file or template that we made and that holds nothing else any more."""
    return data is not None and data in (created(2), created(3), CREATED_TEMPLATE)


def find(data: bytes) -> list[Block]:
    """All whole blocks, in order. A first line without its last one is none."""
    found, at = [], 0
    while begin := _BEGIN.search(data, at):
        owner = begin.group("owner")
        end = re.compile(_END.format(owner=re.escape(owner.decode())).encode(), re.MULTILINE).search(data, begin.end())
        at = begin.end()
        if end is not None:
            added = begin.group("added") is not None
            found.append(Block(owner.decode(), begin.start(), begin.end(), end.start(), end.end(), added))
            at = end.end()
    return found


def get(data: bytes, owner: str) -> Block | None:
    return next((block for block in find(data) if block.owner == owner), None)


def line_end(data: bytes) -> bytes:
    """The line end that the file uses (CRLF when its first line does)."""
    first = data.find(b"\n")
    return b"\r\n" if first > 0 and data[first - 1 : first] == b"\r" else b"\n"


def put(data: bytes, owner: str, text: str) -> bytes:
    """`data` with the block of `owner` holding `text` (LF): left, replaced in place, or added at the end."""
    eol = line_end(data)
    body = text.encode().replace(b"\n", eol)
    block = get(data, owner)
    if block is not None:
        return data[: block.body_start] + body + data[block.body_end :]
    missing = bool(data) and not data.endswith(b"\n")
    mark = b" (line end added)" if missing else b""
    name = owner.encode()
    begin = b"# runtime-reconciler: begin " + name + mark + eol
    return data + (eol if missing else b"") + begin + body + b"# runtime-reconciler: end " + name + eol


def take(data: bytes, owner: str) -> bytes:
    """`data` without the block of `owner`; the line end added before it goes when nothing follows."""
    block = get(data, owner)
    if block is None:
        return data
    before, after = data[: block.start], data[block.end :]
    if not block.line_end_added:
        return before + after
    follower = _BEGIN.match(after)
    if follower is not None:
        return before + _note_line_end(after, follower)
    if after:
        return before + after
    return before.removesuffix(b"\n").removesuffix(b"\r")


def take_tables(data: bytes, prefixes: Collection[tuple[str, ...]]) -> bytes:
    """`data` without the tables at or below `prefixes`, by their headers: for blocks whose comments are gone."""
    kept, dropping = [], False
    for line in data.splitlines(keepends=True):
        if _HEADER.match(line):
            path = _header_path(line)
            dropping = any(path[: len(prefix)] == prefix for prefix in prefixes)
        if not dropping:
            kept.append(line)
    return b"".join(kept)


def _header_path(line: bytes) -> tuple[str, ...]:
    """The keys of a `[header]`; empty for what is none (a line of a list, say)."""
    try:
        table: Any = tomllib.loads(line.strip().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ()
    path: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        key, table = next(iter(table.items()))
        path.append(key)
    return tuple(path)


def _note_line_end(after: bytes, begin: re.Match[bytes]) -> bytes:
    """The next block inherits the added line end."""
    if begin.group("added") is not None:
        return after
    at = begin.end("owner")
    return after[:at] + b" (line end added)" + after[at:]
