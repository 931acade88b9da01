"""Bytes of one configuration file → TOML document, and why it cannot be."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from reconciler.hostconfig.model import Code, Finding

BOM = b"\xef\xbb\xbf"
Document = dict[str, Any]


class Unreadable(Exception):
    """A file that is not TOML for us; `finding` says what and where."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def parse(path: str, data: bytes, *, bom_allowed: bool) -> Document:
    """Raises Unreadable. containerd 1.x accepts a byte order mark, later ones do not."""
    if bom_allowed:
        data = data.removeprefix(BOM)
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(Finding(Code.INVALID_TOML, path, f"{path}:{line}: not UTF-8", line)) from error
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(_why(path, data, str(error))) from error


def line_of(data: bytes, *words: str) -> int | None:
    """The first line that holds all `words`, from 1; else the first with the last of them."""
    lines = data.decode(errors="replace").split("\n")
    for wanted in (words, words[-1:]):
        for number, line in enumerate(lines, 1):
            if all(word in line for word in wanted):
                return number
    return None


def _why(path: str, data: bytes, message: str) -> Finding:
    found = re.search(r"line (\d+)", message)
    line = int(found.group(1)) if found else None
    if re.search(rb"^\s*\{\{.*\}\}", data, re.MULTILINE):
        return Finding(Code.TEMPLATE_FILE, path, f"{path} is a Go template, not TOML", line)
    return Finding(Code.INVALID_TOML, path, f"{path}: {message}", line)
