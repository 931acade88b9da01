"""The last main file that was good while something of ours is on the host: the way back when it vanishes.

Installers that restore or delete whole files leave a node without its configuration, or with half of it. The copy is
for root alone, because a configuration may hold passwords, and goes with the last runtime of ours.
"""

from __future__ import annotations

import contextlib
import logging
import stat
from dataclasses import replace
from pathlib import Path

import msgspec

from reconciler.hostconfig import blocks, imports_list
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.mending import OUR_PREFIX
from reconciler.hostconfig.model import Code, Finding, Findings
from reconciler.hostconfig.writing import read, write_state

log = logging.getLogger(__name__)

NAME = "last-good.json"
SIZE_MAX = 1 << 20
"""Bytes; a larger main file is not kept. Usual ones have some thousand."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Real path on the host."""
    data: bytes
    mode: int


class LastGood:
    """Of one host. Every method blocks on the disk; none of them fails: a copy that is not there puts nothing back."""

    def __init__(self, host: HostRoot, state: Path) -> None:
        self._host, self._file = host, state / NAME

    def load(self, path: str) -> Kept | None:
        """The copy of the main file `path` (a real path), if there is one."""
        try:
            data = read(self._file)
            kept = None if data is None else msgspec.json.decode(data, type=Kept)
        except (OSError, msgspec.MsgspecError):
            return None
        return kept if kept is not None and kept.path == path else None

    def keep(self, path: str) -> None:
        """Copy the file at `path` as it is now; where that is not possible an older copy goes."""
        try:
            local = self._host.local(path)
            data, mode = local.read_bytes(), stat.S_IMODE(local.stat().st_mode)
            wanted = Kept(path=path, data=data, mode=mode)
            if len(data) > SIZE_MAX:
                self.forget()
            elif wanted != self.load(path):
                write_state(self._file, msgspec.json.encode(wanted, order="sorted"))
        except FileNotFoundError:
            self.forget()
        except OSError as error:
            log.warning("the last good configuration cannot be kept: %s", error)
            self.forget()

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)

    def lost(self, path: str, now: bytes | None, *, loads: bool) -> Kept | None:
        """The copy, when `now` (None: not there) can only be what is left of it.

        Not so when it is what the file is without us: then somebody took our part out on purpose.
        """
        kept = self.load(path)
        if kept is None or now == _without_us(kept.data):
            return None
        cut_off = not loads and now is not None and len(now) < len(kept.data) and kept.data.startswith(now)
        return kept if now is None or not now.strip() or cut_off else None


def noted(found: Findings, path: str, now: bytes | None) -> Findings:
    """`found` with the loss of the main file `path`, of which `now` is left, as something that `repair` mends."""
    state = "is gone" if now is None else "is cut off" if now.strip() else "is empty"
    text = f"{path} {state}, and was there when it was last good: `repair` puts that back"
    finding = Finding(Code.MISSING_CONFIG, path, text, repairable=True)
    if found.loads:
        return replace(found, findings=(*found.findings, finding))
    return replace(found, findings=(finding, *(one for one in found.findings if one.path != path)))


def _without_us(data: bytes) -> bytes | None:
    """`data` with nothing of ours in it; None for a file that we made."""
    for block in reversed(blocks.find(data)):
        data = blocks.take(data, block.owner)
    with contextlib.suppress(imports_list.NoList):
        for entry in imports_list.entries(data):
            if entry.rpartition("/")[2].startswith(OUR_PREFIX):
                data = imports_list.remove(data, entry)
    return None if blocks.is_created(data) else data
