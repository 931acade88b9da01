"""What well-known installers leave in an import list that keeps containerd from starting, and the list without it.

Only what is provable: the mended file says what the broken one meant, and nothing of somebody else is lost.
"""

from __future__ import annotations

import posixpath
import re
import tomllib

from reconciler.hostconfig import imports_list
from reconciler.hostconfig.document import BOM

OUR_PREFIX = "runtime-reconciler-"
"""Of the names of our own drop-ins."""
LEFTOVERS = ("kata-deploy", OUR_PREFIX)
"""In the names of files of installers that are known to leave their imports behind; only these are repaired."""
_LIST = re.compile(rb"""^(\xef\xbb\xbf)?[ \t]*["']?imports["']?[ \t]*=[ \t]*\[(?P<inner>[^\]\n]*)\]""", re.MULTILINE)
_FIRST_COMMAS = re.compile(rb"^[ \t]*(,[ \t]*)+")
_COMMAS = re.compile(rb"""("(?:[^"\\\n]|\\.)*"|'[^'\n]*')|,([ \t]*,)+""")


def is_leftover(entry: str) -> bool:
    """True for an import of an installer that is known to leave it behind."""
    return any(mark in posixpath.basename(entry) for mark in LEFTOVERS)


def mended(data: bytes) -> bytes | None:
    """A file that is not TOML without what is known to be mendable; None when that is not its fault."""
    for candidate in (_without_lone_commas(data), _with_one_list(data)):
        if candidate not in (None, data) and _parses(candidate):
            return candidate
    return None


def _without_lone_commas(data: bytes) -> bytes:
    """`imports = [ , ]`, `[, "x"]`, `["x", , "y"]`: an entry was cut out of its list."""
    return _LIST.sub(_mend_commas, data)


def _mend_commas(match: re.Match[bytes]) -> bytes:
    inner = match["inner"]
    kept = _COMMAS.sub(lambda found: found[1] or b",", _FIRST_COMMAS.sub(b"", inner))
    return match[0][: match.start("inner") - match.start(0)] + (kept or b" ") + b"]"


def _with_one_list(data: bytes) -> bytes | None:
    """Two `imports`, of which one is an installer's: its entries go into the other list, and its line goes."""
    try:
        lists = imports_list.lists(data)
        for number in reversed(range(len(lists))):
            others = [entry for at, entries in enumerate(lists) if at != number for entry in entries]
            if len(lists) == 2 and all(is_leftover(entry) or entry in others for entry in lists[number]):
                rest = imports_list.drop(data, number)
                for entry in lists[number]:
                    rest = rest if entry in others else imports_list.add(rest, entry)
                return rest
    except imports_list.NoList:
        return None
    return None


def _parses(data: bytes | None) -> bool:
    try:
        tomllib.loads((data or b"").removeprefix(BOM).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return True
