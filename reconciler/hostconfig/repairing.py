"""What `repair` mends: only what is known to be mendable, and nothing that loads (design section 7).

A main file that vanished and whose last good bytes are known; lone commas in an import list, a second list,
empty imports, dangling and doubled imports of installers that are known to leave them; and a broken drop-in of
our own, which is set aside.
"""

from __future__ import annotations

import posixpath

from reconciler.hostconfig import imports_list
from reconciler.hostconfig.mending import OUR_PREFIX, is_leftover, mended
from reconciler.hostconfig.model import Code, Finding, Refused
from reconciler.hostconfig.snapshot import Plan, Snapshot
from reconciler.hostconfig.writing import digest

ROUNDS = 8
"""Mending one thing shows the next one; far more than was ever seen together."""


def plan_repair(snapshot: Snapshot) -> Plan:
    """Raises Refused when something is left that is not ours to mend."""
    now = snapshot.examine(snapshot.effective())
    snapshot.put_back_main()
    then = snapshot.examine(snapshot.effective())
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
    if finding.code is Code.DUPLICATE_IMPORT:
        _take_doubled(snapshot)
    elif finding.code is not Code.INVALID_TOML:
        _take_import(snapshot, finding)
    elif posixpath.basename(finding.path).startswith(OUR_PREFIX):
        _set_aside(snapshot, snapshot.host.real(finding.path))
    else:
        real = snapshot.host.real(finding.path)
        data = snapshot.read(real) or b""
        snapshot.put(real, mended(data) or data)


def _take_import(snapshot: Snapshot, finding: Finding) -> None:
    """Take out every entry that the finding is about: those that resolve to its path, or the empty ones of it."""
    for file in snapshot.effective().files:
        folder, real = posixpath.dirname(file.path), snapshot.host.real(file.path)
        for entry in file.document.get("imports", []):
            path = posixpath.normpath(posixpath.join(folder, entry)) if entry else file.path
            if path == finding.path:
                snapshot.put(real, imports_list.remove(snapshot.read(real) or b"", entry))


def _take_doubled(snapshot: Snapshot) -> None:
    """Take out what a known installer imports again; the first one keeps its place in the order."""
    for file in snapshot.effective().files:
        real, entries = snapshot.host.real(file.path), file.document.get("imports", [])
        for number, entry in enumerate(entries):
            if entry in entries[:number] and is_leftover(entry):
                snapshot.put(real, imports_list.remove(snapshot.read(real) or b"", entry, last=True))


def _set_aside(snapshot: Snapshot, real: str) -> None:
    """Move a file to where no import of its directory matches it; its bytes are kept."""
    data = snapshot.read(real) or b""
    folder, name = posixpath.split(real)
    snapshot.put(posixpath.join(posixpath.dirname(folder), f"{name}.{digest(data)[:8]}.set-aside"), data)
    snapshot.put(real, None)
