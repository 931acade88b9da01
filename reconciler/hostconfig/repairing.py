"""What `repair` mends: only what is known to be mendable, and nothing that loads (design section 7).

Lone commas in an import list, empty imports, dangling imports of installers that are known to leave them,
and a broken drop-in of our own, which is set aside.
"""

from __future__ import annotations

import posixpath

from reconciler.hostconfig import imports_list
from reconciler.hostconfig.document import LONE_COMMA, mend_comma
from reconciler.hostconfig.effective import OUR_PREFIX
from reconciler.hostconfig.model import Code, Finding, Refused
from reconciler.hostconfig.snapshot import Plan, Snapshot
from reconciler.hostconfig.writing import digest

ROUNDS = 8
"""Mending one thing shows the next one; far more than was ever seen together."""


def plan_repair(snapshot: Snapshot) -> Plan:
    """Raises Refused when something is left that is not ours to mend."""
    now = then = snapshot.examine(snapshot.effective())
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
    if finding.code is not Code.INVALID_TOML:
        _take_import(snapshot, finding)
    elif posixpath.basename(finding.path).startswith(OUR_PREFIX):
        _set_aside(snapshot, snapshot.host.real(finding.path))
    else:
        real = snapshot.host.real(finding.path)
        snapshot.put(real, LONE_COMMA.sub(mend_comma, snapshot.read(real) or b""))


def _take_import(snapshot: Snapshot, finding: Finding) -> None:
    """Take out every entry that the finding is about: those that resolve to its path, or the empty ones of it."""
    for file in snapshot.effective().files:
        folder, real = posixpath.dirname(file.path), snapshot.host.real(file.path)
        for entry in file.document.get("imports", []):
            path = posixpath.normpath(posixpath.join(folder, entry)) if entry else file.path
            if path == finding.path:
                snapshot.put(real, imports_list.remove(snapshot.read(real) or b"", entry))


def _set_aside(snapshot: Snapshot, real: str) -> None:
    """Move a file to where no import of its directory matches it; its bytes are kept."""
    data = snapshot.read(real) or b""
    folder, name = posixpath.split(real)
    snapshot.put(posixpath.join(posixpath.dirname(folder), f"{name}.{digest(data)[:8]}.set-aside"), data)
    snapshot.put(real, None)
