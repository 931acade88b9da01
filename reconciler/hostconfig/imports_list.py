"""The top-level `imports` of one file: an entry is added and taken out byte by byte (design 6.5).

A small scanner of TOML statements finds the list; everything else in the file stays as it is. An entry
goes behind the last one, or alone into an empty list; without a list a line of our own is added, which
its comment tells from one of somebody else. `remove(add(x)) == x`.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass

from reconciler.hostconfig.blocks import line_end
from reconciler.hostconfig.document import BOM

ADDED = b"# added by runtime-reconciler"
_BLANK = re.compile(rb"(?:[ \t\r\n]|#[^\n]*)*")
_KEY = re.compile(rb"""[ \t]*((?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_.\- \t])+?)[ \t]*=[ \t]*""")
_STRING = re.compile(
    rb'"""(?:[^\\]|\\.)*?"""' rb"|'''.*?'''" rb'|"(?:[^"\\\n]|\\.)*"' rb"|'[^'\n]*'",
    re.DOTALL,
)


class NoList(ValueError):
    """The list cannot be found or changed in place."""


@dataclass(frozen=True)
class _Entry:
    start: int
    end: int
    value: str


@dataclass(frozen=True)
class _Statement:
    key: str
    start: int
    value: int
    """Offset of its value."""
    end: int
    """Offset of the line end behind it."""


def add(data: bytes, entry: str) -> bytes:
    """`data` with `entry` in its imports. Raises NoList."""
    quoted = json.dumps(entry, ensure_ascii=False).encode()
    statements = _statements(data)
    found = next((one for one in statements if one.key == "imports"), None)
    if found is None:
        at = _place_of_line(data, statements)
        return data[:at] + b"imports = [" + quoted + b"] " + ADDED + line_end(data) + data[at:]
    if data[found.value : found.value + 1] != b"[":
        raise NoList("`imports` is not a list")
    listed = _entries(data, found)
    if listed:
        at = listed[-1].end
        return data[:at] + b", " + quoted + data[at:]
    return data[: found.value + 1] + quoted + data[found.value + 1 :]


def entries(data: bytes) -> list[str]:
    """All of its imports, as written. Raises NoList."""
    found = next((one for one in _statements(data) if one.key == "imports"), None)
    return [] if found is None else [one.value for one in _entries(data, found)]


def lists(data: bytes) -> list[list[str]]:
    """The entries of every `imports` above the first table: more than one list is not TOML. Raises NoList."""
    found = [one for one in _statements(data) if one.key == "imports"]
    return [[one.value for one in _entries(data, statement)] for statement in found]


def drop(data: bytes, number: int) -> bytes:
    """`data` without the lines of its list `number`, from 0. Raises NoList."""
    found = [one for one in _statements(data) if one.key == "imports"][number]
    return data[: found.start] + data[found.end :].removeprefix(b"\r").removeprefix(b"\n")


def remove(data: bytes, entry: str, *, last: bool = False) -> bytes:
    """`data` without `entry` in its imports, the first one or the `last`.

    A line that we added goes when nothing else is in it.
    """
    found = next((one for one in _statements(data) if one.key == "imports"), None)
    if found is None:
        return data
    listed = _entries(data, found)
    found_at = [number for number, one in enumerate(listed) if one.value == entry]
    if not found_at:
        return data
    number = found_at[-1 if last else 0]
    if len(listed) == 1 and data[found.value : found.end].rstrip().endswith(ADDED):
        rest = data[found.end :]
        return data[: found.start] + rest.removeprefix(b"\r").removeprefix(b"\n")
    start, end = listed[number].start, listed[number].end
    if number > 0:
        comma = data.rfind(b",", listed[number - 1].end, start)
        start = comma if _only_blanks(data[comma + 1 : start]) else start
    elif number + 1 < len(listed):
        comma = data.find(b",", end, listed[number + 1].start)
        end = comma + 1 + len(re.match(rb"[ \t]*", data[comma + 1 :])[0])  # type: ignore[index]
    return data[:start] + data[end:]


def _only_blanks(data: bytes) -> bool:
    return not data.strip()


def _place_of_line(data: bytes, statements: list[_Statement]) -> int:
    """Behind the line of `version`, else at the beginning: a key below a table's header would be the table's."""
    for one in statements:
        if one.key == "version" and data[one.end : one.end + 1]:
            return data.index(b"\n", one.end) + 1
    return _beginning(data)


def _beginning(data: bytes) -> int:
    return len(BOM) if data.startswith(BOM) else 0


def _statements(data: bytes) -> list[_Statement]:
    """The statements above the first table. Raises NoList where they cannot be told apart."""
    found: list[_Statement] = []
    at = _beginning(data)
    while True:
        at += len(_BLANK.match(data, at)[0])  # type: ignore[index]
        if at >= len(data) or data[at : at + 1] == b"[":
            return found
        key = _KEY.match(data, at)
        if key is None:
            raise NoList(f"line {data.count(10, 0, at) + 1} is not understood")
        end = _end_of_value(data, key.end())
        found.append(_Statement(_name(key[1]), at, key.end(), end))
        at = end


def _name(key: bytes) -> str:
    """A bare or quoted key; a dotted one is none of those that are looked for."""
    try:
        table = tomllib.loads(key.decode() + " = 0")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ""
    ((name, value),) = table.items()
    return "" if isinstance(value, dict) else name


def _end_of_value(data: bytes, at: int) -> int:
    """Where the line ends that closes the value beginning at `at`, a comment behind it included."""
    depth = 0
    while at < len(data):
        string = _STRING.match(data, at)
        if string is not None:
            at = string.end()
            continue
        char = data[at : at + 1]
        if char == b"#":
            at = data.find(b"\n", at)
            if at < 0:
                return len(data)
            continue
        if char == b"\n" and depth == 0:
            return at - 1 if data[at - 1 : at] == b"\r" else at
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(char, 0)
        at += 1
    return len(data)


def _entries(data: bytes, statement: _Statement) -> list[_Entry]:
    """The strings of the list, comments between them passed over."""
    found, at = [], statement.value + 1
    while at < statement.end:
        string = _STRING.match(data, at)
        if string is not None:
            value = tomllib.loads("x = " + string[0].decode())["x"]
            found.append(_Entry(at, string.end(), value))
            at = string.end()
        elif data[at : at + 1] == b"#":
            at = data.find(b"\n", at, statement.end)
            if at < 0:
                break
        elif data[at : at + 1] == b"]":
            break
        else:
            at += 1
    return found
