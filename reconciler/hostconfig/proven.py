"""The last set of files that was proven, and the way back to it (design section 6, the guard).

Vendors' payloads edit containerd's configuration by themselves. What they leave behind that would not start is
set aside, never deleted, and the set that was proven before takes its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from reconciler.hostconfig import writing
from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, FileChange, Refused
from reconciler.hostconfig.writing import ABSENT, Trace, digest, read, write_state

RUN_DIR = "/run/runtime-reconciler"
"""What was proven lies in memory, and lives as long as the boot that proved it."""
MANIFEST = "proven.json"
BYTES = "proven"
REJECTED = "rejected"
HISTORY = "put-back.json"
PUT_BACKS = 2
"""Put-backs of one file in WINDOW around one pod of a payload; after them it is somebody's will, and contested."""
WINDOW = timedelta(hours=1)
REJECTED_MAX = 10
"""Rejected files kept; the oldest go."""


class PutBack(msgspec.Struct, frozen=True):
    """One put-back of a file."""

    at: datetime
    during: str
    """UID of the phase pod on the node; empty when nobody knows it."""


class ProvenSet(msgspec.Struct, frozen=True, kw_only=True):
    """Real path on the host → digest, `absent` for a main file that was not there."""

    version: str = ""
    """The release that it was proven with: another one reads it otherwise."""
    files: dict[str, str] = {}


class Proven:
    """Of one host; rejected bytes go to its state directory. Every method blocks; those that write need the lock."""

    def __init__(self, host: HostRoot, state: Path, version: str, trace: Trace) -> None:
        self._host, self._state, self._version, self._trace = host, state, version, trace
        self._folder = host.local(RUN_DIR)

    def load(self) -> ProvenSet | None:
        """None when nothing was proven by this release, or what was kept cannot be read."""
        try:
            data = read(self._folder / MANIFEST)
            kept = None if data is None else msgspec.json.decode(data, type=ProvenSet)
        except (OSError, msgspec.MsgspecError):
            return None
        return kept if kept is not None and kept.version == self._version else None

    def keep(self, effective: Effective) -> None:
        """Remember the files of `effective`. Raises Refused(NotWritable)."""
        loaded = {self._host.real(file.path): file.data for file in effective.files}
        digests = {path: digest(data) for path, data in loaded.items()}
        wanted = ProvenSet(version=self._version, files={self._host.real(effective.main): ABSENT} | digests)
        if wanted == self.load():
            return
        try:
            self._trace("proven set")
            for data in loaded.values():
                write_state(self._folder / BYTES / digest(data), data)
            write_state(self._folder / MANIFEST, msgspec.json.encode(wanted, order="sorted"))
            for old in (self._folder / BYTES).iterdir():
                if old.name not in wanted.files.values():
                    old.unlink(missing_ok=True)
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{self._folder / BYTES}: {error.strerror}") from error

    def forget(self) -> None:
        """Nothing is proven any more; rejected bytes stay."""
        with contextlib.suppress(OSError):
            (self._folder / MANIFEST).unlink(missing_ok=True)
            for old in (self._folder / BYTES).glob("*"):
                old.unlink(missing_ok=True)
            (self._folder / BYTES).rmdir()
            self._folder.rmdir()

    def put_back(self, proven: ProvenSet, broken: frozenset[str], now: datetime, during: str) -> list[FileChange]:
        """Make the files those of `proven`, and set the other `broken` ones aside; what was there is kept.

        `during`: UID of the phase pod in whose window this happens; empty when nobody knows it.
        Raises Refused: NotOurs when nothing differs, Busy while somebody has a file open for writing, Contested
        after PUT_BACKS of a file in WINDOW, NotWritable, ForeignChange.
        """
        wanted = {path: ABSENT for path in broken} | proven.files
        here = {path: digest(read(self._host.local(path))) for path in wanted}
        differing = sorted(path for path, held in here.items() if held != wanted[path])
        if not differing:
            raise Refused(Code.NOT_OURS, "the files are as they were proven: the configuration is not the cause")
        for path in differing:
            self._not_open_for_writing(path)
        self._count(differing, now, during)
        return [self._replace(path, here[path], wanted[path], now) for path in differing]

    def _replace(self, path: str, held: str, wanted: str, now: datetime) -> FileChange:
        local = self._host.local(path)
        rejected, data = read(local), self._bytes(wanted)
        if rejected is not None:
            self._reject(path, rejected, now)
        writing.replace(self._host, path, held, data, temporary_in=local.parent.parent, trace=self._trace)
        return FileChange(path, "deleted" if data is None else "created" if rejected is None else "edited", "")

    def _bytes(self, wanted: str) -> bytes | None:
        if wanted == ABSENT:
            return None
        data = read(self._folder / BYTES / wanted)
        if data is None or digest(data) != wanted:
            raise Refused(Code.FOREIGN_CHANGE, f"the proven bytes {wanted[:12]} are lost")
        return data

    def _reject(self, path: str, data: bytes, now: datetime) -> None:
        folder = self._state / REJECTED
        try:
            write_state(folder / f"{now:%Y%m%dT%H%M%S}{path.replace('/', '-')}", data)
            for old in sorted(folder.iterdir())[:-REJECTED_MAX]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{folder}: {error.strerror}") from error

    def _count(self, paths: list[str], now: datetime, during: str) -> None:
        """Each pod has put-backs of its own: the next one is another try, and its pace is the controller's.

        Raises Refused(Contested).
        """
        history = {path: [one for one in held if now - one.at < WINDOW] for path, held in self._history().items()}
        for path in paths:
            if sum(during in ("", one.during) for one in history.get(path, ())) >= PUT_BACKS:
                text = (
                    f"{path} was put back {PUT_BACKS} times within an hour and is changed again: somebody wants it so"
                )
                raise Refused(Code.CONTESTED, text)
            history[path] = [*history.get(path, ()), PutBack(now, during)]
        try:
            write_state(self._state / HISTORY, msgspec.json.encode({p: t for p, t in history.items() if t}))
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{self._state / HISTORY}: {error.strerror}") from error

    def _history(self) -> dict[str, list[PutBack]]:
        try:
            data = read(self._state / HISTORY)
            return {} if data is None else msgspec.json.decode(data, type=dict[str, list[PutBack]])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _not_open_for_writing(self, path: str) -> None:
        """A read lease is refused while anybody has the file open for writing (fcntl(2), F_SETLEASE)."""
        try:
            handle = os.open(self._host.local(path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError as error:
            raise Refused(Code.BUSY, f"{path} is open for writing") from error
        except OSError:
            return  # a filesystem without leases
        finally:
            os.close(handle)
