"""The guard's hands: remember what was proven, put it back when what lies on disk would not start (design 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from reconciler.api.clock import Clock
from reconciler.cri.api import Cri, CriError
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.lock import host_lock
from reconciler.hostconfig.model import Code, Outcome, Refused, Timing, Verdict
from reconciler.hostconfig.proof import Expectation, Prover
from reconciler.hostconfig.proven import Proven
from reconciler.hostconfig.snapshot import Snapshot
from reconciler.hostconfig.state import State
from reconciler.systemd.api import SystemdError, UnitState

Signature = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and time of change of each file: another one means that somebody wrote."""


class Rescue:
    """Of one host; takes the host's lock for whatever it writes."""

    def __init__(
        self,
        host: HostRoot,
        state: State,
        proven: Proven,
        snapshot: Callable[[], Snapshot],
        *,
        prover: Prover | None,
        cri: Cri | None,
        clock: Clock,
        timing: Timing,
    ) -> None:
        self._host, self._state, self._proven, self._snapshot = host, state, proven, snapshot
        self._prover, self._cri, self._clock, self._timing = prover, cri, clock, timing

    async def signature(self) -> Signature:
        """Of the files that are loaded now, and of those that were proven."""
        return await asyncio.to_thread(self._signature)

    def _signature(self) -> Signature:
        effective, kept = self._snapshot().effective(), self._proven.load()
        paths = {self._host.real(file.path) for file in effective.files} | {self._host.real(effective.main)}
        paths |= set(kept.files) if kept is not None else set()
        return tuple(_stat(self._host.local(path), path) for path in sorted(paths))

    async def remember(self) -> bool:
        """Keep the files as proven when CRI serves what they say and its process began after their last change.

        False when that cannot be said. Raises Refused(Busy, NotWritable).
        """
        if self._prover is None or self._cri is None:
            return False
        try:
            state = await self._prover.unit()
            status = await self._cri.status(timeout=self._timing.call)
        except (SystemdError, CriError):
            return False
        if state.active_state != "active" or state.job or not status.runtime_ready:
            return False
        async with host_lock(self._state.lock, wait=0.0):
            return await asyncio.to_thread(self._remember, self._began(state), frozenset(status.handlers))

    def _began(self, state: UnitState) -> datetime:
        return self._clock.now() - timedelta(seconds=self._clock.monotonic() - state.active_enter_monotonic)

    def _remember(self, began: datetime, running: frozenset[str]) -> bool:
        if self._state.load().pending is not None:
            return False
        snapshot = self._snapshot()
        effective = snapshot.effective()
        found = snapshot.examine(effective)
        if not found.serves or set(found.handlers) != running:
            return False
        for file in effective.files:
            if datetime.fromtimestamp(self._host.local(file.path).stat().st_mtime, UTC) > began:
                return False
        self._proven.keep(effective)
        return True

    async def loads(self) -> bool:
        """Whether what lies on disk would start. Raises HostConfigError, OSError."""
        return await asyncio.to_thread(self._loads)

    def _loads(self) -> bool:
        snapshot = self._snapshot()
        return snapshot.examine(snapshot.effective()).loads

    async def forget(self) -> None:
        """The window is over, or the files are others by our own hand. Raises Refused(Busy)."""
        async with host_lock(self._state.lock, wait=0.0):
            await asyncio.to_thread(self._proven.forget)

    async def put_back(self, *, failed: bool, during: str) -> Outcome:
        """The proven set in place of one that would not start; `failed`: it was tried, and did not.

        `during`: UID of the phase pod in whose window this happens; empty when nobody knows it.
        `unchanged`: it would start. `changed`: put back, and CRI serves; `broken`: put back, and it does not.
        `refused`: nothing was changed, by the reason (UnsupportedSyntax, Busy, Contested, NotOurs, NotWritable).
        """
        try:
            async with host_lock(self._state.lock, wait=self._timing.lock_wait):
                return await self._put_back(failed, during)
        except Refused as error:
            return error.outcome()

    async def _put_back(self, failed: bool, during: str) -> Outcome:
        if (await asyncio.to_thread(self._state.load)).pending is not None:
            raise Refused(Code.BUSY, "a change of ours is under way; its own undo is nearer")
        snapshot = self._snapshot()
        effective = await asyncio.to_thread(snapshot.effective)
        found = await asyncio.to_thread(snapshot.examine, effective)
        if found.loads and not failed:
            return Outcome(Verdict.UNCHANGED)
        for finding in found.findings:
            if finding.code is Code.UNSUPPORTED_SYNTAX:
                raise Refused(finding.code, f"{finding.path}: {finding.message}")
        kept = await asyncio.to_thread(self._proven.load)
        if kept is None:
            raise Refused(Code.NOT_OURS, "no set of files was proven by this release of containerd")
        broken = frozenset(self._host.real(one.path) for one in effective.fatal if one.path)
        changes = await asyncio.to_thread(self._proven.put_back, kept, broken, self._clock.now(), during)
        why = (
            "; ".join(f"{one.path}: {one.message}" for one in found.findings[:3]) or "containerd did not start with it"
        )
        return await self._served(Outcome(Verdict.CHANGED, None, why, files=tuple(changes)))

    async def _served(self, outcome: Outcome) -> Outcome:
        """One restart, and only of a daemon that does not serve: a good one has not seen the broken files."""
        if self._prover is None or await self._serves() or await self._stopped_by_a_person(self._prover):
            return outcome
        since = self._clock.monotonic()
        proof = await self._prover.restart_and_prove(Expectation(), since)
        outage = round(self._clock.monotonic() - since, 3)
        if proof.good:
            return Outcome(Verdict.CHANGED, None, outcome.message, outcome.files, restarted=True, outage=outage)
        text = f"{outcome.message}; put back, and still: {proof.message}"
        return Outcome(Verdict.BROKEN, Code.VERIFY_FAILED, text, outcome.files, restarted=True, outage=outage)

    async def _stopped_by_a_person(self, prover: Prover) -> bool:
        try:
            state = await prover.unit()
        except SystemdError:
            return False
        return state.stopped_on_purpose

    async def _serves(self) -> bool:
        if self._cri is None:
            return False
        try:
            return (await self._cri.status(timeout=self._timing.call)).runtime_ready
        except CriError:
            return False


def _stat(local: Path, path: str) -> tuple[str, int, int, int]:
    try:
        info = local.stat()
    except OSError:
        return path, 0, 0, 0
    return path, info.st_ino, info.st_size, info.st_mtime_ns
