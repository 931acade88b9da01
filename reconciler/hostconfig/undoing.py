"""The way back from a change when somebody else has edited a file of it since (design 6.11).

The old bytes would take that edit away: so our part of the file becomes what it was before, and all else stays.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

import msgspec

from reconciler.hostconfig import blocks, dropins, imports_list, writing
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.snapshot import FilePlan
from reconciler.hostconfig.state import Pending, PendingFile, State
from reconciler.hostconfig.writing import ABSENT, digest

NoWorse = Callable[[Mapping[str, bytes | None]], bool]
"""Whether files with that change (real path → bytes, None: gone) load and serve if they do without it. Blocks."""


class Undoing:
    """Of the files of one host. Every method blocks on the disk."""

    def __init__(self, host: HostRoot, state: State, no_worse: NoWorse) -> None:
        self._host, self._state, self._no_worse = host, state, no_worse

    def torn(self, file: PendingFile) -> bool:
        """Whether the file is half of a write of ours, in place, in either direction."""
        data = writing.read(self._host.local(file.path))
        before, after = (self._state.bytes_of(wanted) for wanted in (file.before, file.after))
        if data is None or before is None or after is None:
            return False
        return writing.torn(data, before, after) or writing.torn(data, after, before)

    def holds_ours(self, pending: Pending, file: PendingFile) -> bool:
        """True for a file that was edited by somebody and holds something that only the change can have put there."""
        now = self._edited(file)
        return now is not None and self._as_before(pending, file, now) != now

    def follow(self, pending: Pending) -> Pending:
        """`pending` whose files lead from what is there now to what is to be there after the undo.

        The bytes of both are kept first. A file stays as it was recorded when our part in it cannot be told, or when
        the result would not load. Raises Refused(NotWritable, ForeignChange).
        """
        followed = tuple(self._followed(pending, file) for file in pending.files)
        return msgspec.structs.replace(pending, files=followed)

    def _followed(self, pending: Pending, file: PendingFile) -> PendingFile:
        now = self._edited(file)
        deleted = not self._host.exists(file.path) and ABSENT not in (file.before, file.after)
        if now is None and not deleted:
            return file
        then = None if now is None else self._as_before(pending, file, now)
        if then == now:  # nothing of an apply is left in it
            if pending.operation != "apply":
                return file
        elif not self._no_worse(
            {**{one.path: self._state.bytes_of(one.before) for one in pending.files}, file.path: then}
        ):
            return file
        self._state.keep((FilePlan(file.path, now, then),))
        return PendingFile(path=file.path, before=digest(then), after=digest(now))

    def _edited(self, file: PendingFile) -> bytes | None:
        """Its bytes when they are neither those before nor those after the change; None else, and for no file."""
        now = writing.read(self._host.local(file.path))
        return None if digest(now) in (file.before, file.after) or self.torn(file) else now

    def _as_before(self, pending: Pending, file: PendingFile, now: bytes) -> bytes | None:
        if not pending.name:  # a repair adds nothing of ours
            return now
        return as_before(file.path, now, self._state.bytes_of(file.before), pending.name)


def as_before(path: str, now: bytes, before: bytes | None, name: str) -> bytes | None:
    """`now` with our part as it was in `before` (None: the file was not there); None for a file that goes."""
    if before is None and posixpath.basename(path) == dropins.file_name(name):
        return dropins.rest_of(now, name)
    then = now
    for owner in (name, blocks.RUNC_OWNER):
        held = blocks.get(before or b"", owner)
        if held is None:
            then = blocks.take(then, owner)
        else:
            then = blocks.put(then, owner, held.body(before or b"").decode().replace("\r\n", "\n"))
    then = _imports_as_before(then, before or b"")
    return None if before is None and blocks.is_created(then) else then


def _imports_as_before(now: bytes, before: bytes) -> bytes:
    try:
        here, there = _ours(now), _ours(before)
        for entry in here:
            if entry not in there:
                now = imports_list.remove(now, entry)
        for entry in there:
            if entry not in here:
                now = imports_list.add(now, entry)
    except imports_list.NoList:
        pass  # a list that cannot be read cannot be changed either: a pattern of ours without files is harmless
    return now


def _ours(data: bytes) -> list[str]:
    return [entry for entry in imports_list.entries(data) if posixpath.basename(entry) == dropins.PATTERN]
