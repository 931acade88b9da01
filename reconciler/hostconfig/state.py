"""The journal on the host: what we hold there, and the change that is under way (design 6.7 to 6.11).

`journal.json` is replaced whole before each step; the bytes before and after a change lie beside it,
so that a change can be finished or taken back by whoever gets the lock next.
"""

from __future__ import annotations

import contextlib
import enum
from pathlib import Path

import msgspec

from reconciler.hostconfig.model import Code, Refused
from reconciler.hostconfig.snapshot import FilePlan
from reconciler.hostconfig.writing import MODE, Trace, digest, read, sync_directory, write_state

JOURNAL = "journal.json"
LOCK = "lock"
TRANSACTION = "transaction"


class Step(enum.StrEnum):
    """How far a change got; recovery trusts hashes, and this only for what hashes cannot tell."""

    WRITING = "writing"
    WRITTEN = "written"
    UNDOING = "undoing"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime of which the host holds something."""

    uid: str = ""
    handlers: tuple[str, ...] = ()
    """Those that we wrote."""


class PendingFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    before: str
    """Digest, or `absent`."""
    after: str
    mode: int = MODE
    """Of a file that is not there."""


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was begun and is not proven yet."""

    operation: str
    name: str
    uid: str = ""
    step: Step = Step.WRITING
    files: tuple[PendingFile, ...] = ()
    ours: tuple[str, ...] = ()
    """Handlers that CRI must serve."""
    written: tuple[str, ...] = ()
    """Those of them that we write."""
    gone: tuple[str, ...] = ()
    handlers_before: tuple[str, ...] = ()
    default_runtime: str = ""
    network_ready: bool = False
    sandboxes: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    boot: str = ""
    began: str = ""
    """InvocationID of the unit when the change began: as long as it runs, the daemon has seen nothing of it."""
    invocation: str = ""
    """InvocationID of the unit right before our last restart: another one afterwards says that it took place."""
    commit: float | None = None
    """CLOCK_MONOTONIC when the last byte of this step was written; None before it."""
    restarts: int = 0
    """Restarts asked for in this step."""
    reason: str = ""
    """Why it is being undone."""
    previous: Held | None = None
    """What the host held of the runtime when the change began."""


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    runtimes: dict[str, Held] = msgspec.field(default_factory=dict)
    directories: tuple[str, ...] = ()
    """Those that we made (real paths); they go with the last file in them."""
    pending: Pending | None = None


class State:
    """The state directory of one host. Every method blocks on the disk."""

    def __init__(self, folder: Path, trace: Trace) -> None:
        self.folder = folder
        self._trace = trace

    @property
    def lock(self) -> Path:
        return self.folder / LOCK

    @property
    def transaction(self) -> Path:
        return self.folder / TRANSACTION

    def load(self) -> Journal:
        """Raises Refused(ForeignChange) on a journal that cannot be read: guessing would lose the undo."""
        try:
            data = read(self.folder / JOURNAL)
            return Journal() if data is None else msgspec.json.decode(data, type=Journal)
        except (OSError, msgspec.MsgspecError) as error:
            raise Refused(Code.FOREIGN_CHANGE, f"{self.folder / JOURNAL} cannot be read: {error}") from error

    def save(self, journal: Journal) -> None:
        """An empty journal is no file: nothing of ours is left behind. Raises Refused(NotWritable)."""
        try:
            self._trace("journal gone" if journal == Journal() else "journal")
            if journal == Journal():
                (self.folder / JOURNAL).unlink(missing_ok=True)
                if self.folder.is_dir():
                    sync_directory(self.folder)
                return
            write_state(self.folder / JOURNAL, msgspec.json.encode(journal, order="sorted"))
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{self.folder / JOURNAL}: {error.strerror}") from error

    def keep(self, plans: tuple[FilePlan, ...]) -> None:
        """Lay down the bytes of a change before it begins. Raises Refused(NotWritable)."""
        try:
            self._trace("keep")
            for plan in plans:
                for data in (plan.before, plan.after):
                    if data is not None:
                        write_state(self._bytes(digest(data)), data)
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{self.transaction}: {error.strerror}") from error

    def bytes_of(self, wanted: str) -> bytes | None:
        """The kept bytes with that digest; None for `absent`. Raises Refused(ForeignChange) when they are lost."""
        if wanted == digest(None):
            return None
        try:
            data = read(self._bytes(wanted))
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{self.transaction}: {error.strerror}") from error
        if data is None or digest(data) != wanted:
            raise Refused(Code.FOREIGN_CHANGE, f"the kept bytes {wanted[:12]} in {self.transaction} are lost")
        return data

    def forget(self) -> None:
        """Delete kept bytes, the disarmed script, what that took away, halves; what stays goes with the next change."""
        kept = self.transaction.iterdir() if self.transaction.is_dir() else ()
        ours = (path for pattern in ("undo*", "rejected-*", "*.new") for path in self.folder.glob(pattern))
        for path in (*ours, *kept):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _bytes(self, wanted: str) -> Path:
        return self.transaction / wanted


def pending_files(plans: tuple[FilePlan, ...]) -> tuple[PendingFile, ...]:
    return tuple(
        PendingFile(path=plan.path, before=digest(plan.before), after=digest(plan.after), mode=plan.mode)
        for plan in plans
    )
