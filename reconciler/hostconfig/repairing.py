"""What `repair` mends: lone commas in an import list, and dangling imports of installers that are known."""

from __future__ import annotations

import posixpath
import re
from functools import partial

from reconciler.hostconfig.document import LONE_COMMA, mend_comma
from reconciler.hostconfig.model import Code, Finding, Refused
from reconciler.hostconfig.snapshot import Plan, Snapshot

_IMPORTS = re.compile(rb"""^(\xef\xbb\xbf)?[ \t]*["']?imports["']?[ \t]*=[ \t]*\[(?P<list>[^\]]*)\]""", re.MULTILINE)
ROUNDS = 8
"""Mending one thing shows the next one; far more than was ever seen together."""


def plan_repair(snapshot: Snapshot) -> Plan:
    """Raises Refused when something is left that is not ours to mend."""
    effective = snapshot.effective()
    now = snapshot.examine(effective)
    then = now
    for _ in range(ROUNDS):
        broken = next((finding for finding in then.findings if finding.repairable), None)
        if broken is None:
            break
        _mend(snapshot, broken)
        then = snapshot.examine(snapshot.effective())
    if not (then.loads and then.serves):
        first = then.findings[0]
        raise Refused(first.code, f"not ours to mend: {first.message}", now.findings)
    return Plan(snapshot.files(), now, then)


def _mend(snapshot: Snapshot, finding: Finding) -> None:
    candidates = [finding.path] if finding.code is Code.INVALID_TOML else [f.path for f in snapshot.effective().files]
    for path in candidates:
        real = snapshot.host.real(path)
        data = snapshot.read(real) or b""
        if finding.code is Code.INVALID_TOML:
            mended = LONE_COMMA.sub(mend_comma, data)
        else:
            mended = _IMPORTS.sub(partial(_drop, path, finding.path), data, count=1)
        snapshot.put(real, mended)


def _drop(importer: str, gone: str, match: re.Match[bytes]) -> bytes:
    """The import list without the entry that resolves to `gone`."""
    start, end = match.span("list")
    whole, offset = match.group(0), match.start()
    entries = re.findall(rb"""(?:"[^"]*"|'[^']*')""", match.group("list"))
    kept = [entry for entry in entries if _resolves(importer, entry[1:-1].decode()) != gone]
    if len(kept) == len(entries):
        return whole
    return whole[: start - offset] + b", ".join(kept) + whole[end - offset :]


def _resolves(importer: str, entry: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), entry))
