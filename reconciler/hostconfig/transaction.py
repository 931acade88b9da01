"""One change from its first write to its proof or undo, in steps that a later process can go on from.

What was reached is told by the hashes of the files; the journal's step only adds what hashes cannot
tell (design 6.7 to 6.11). Every path ends with no pending change in the journal.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from reconciler.api.clock import Clock
from reconciler.hostconfig import directories, writing
from reconciler.hostconfig.deadman import DeadMan
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Outcome, Refused, Timing, Verdict
from reconciler.hostconfig.proof import NOTHING_PUT_BACK, Proof, Prover, expectation, expectation_of_undo
from reconciler.hostconfig.state import Held, Journal, Pending, PendingFile, State, Step
from reconciler.hostconfig.undoing import NoWorse, Undoing
from reconciler.hostconfig.writing import Trace, digest
from reconciler.systemd.api import SystemdError

log = logging.getLogger(__name__)

RESTARTS_MAX = 2
"""Restarts that one step may ask for: its own, and one more when a killed process may not have got its own."""
REARM = 20.0
"""Seconds between two renewals of the dead-man switch while a slow start is waited for."""


class Transaction:
    """Drives the pending change of the journal to its end. The caller holds the lock."""

    def __init__(
        self,
        host: HostRoot,
        state: State,
        *,
        prover: Prover | None,
        dead_man: DeadMan | None,
        clock: Clock,
        timing: Timing,
        boot: str,
        trace: Trace,
        planned_outage: Callable[[bool], None],
        no_worse: NoWorse,
    ) -> None:
        self._host, self._state = host, state
        self._undoing = Undoing(host, state, no_worse)
        self._prover, self._dead_man = prover, dead_man
        self._clock, self._timing, self._boot, self._trace = clock, timing, boot, trace
        self._planned_outage = planned_outage
        self._restarted, self._outage = False, 0.0

    async def recover(self, journal: Journal, pending: Pending) -> Outcome:
        """Go on with what another process began: forward once something was written, else it never was."""
        now = await asyncio.to_thread(lambda: [self._now(file) for file in pending.files])
        untouched = all(held == file.before for held, file in zip(now, pending.files, strict=True))
        if pending.step is Step.WRITING and untouched:
            await self._finish(pending, undone=True)
            return self._outcome(Verdict.UNCHANGED)
        if pending.step is Step.WRITTEN and pending.files and untouched:
            reason = "the host took the change back by itself"
            pending = msgspec.structs.replace(pending, step=Step.UNDOING, restarts=0, reason=reason)
            journal = await self._save(journal, pending)
        return await self.drive(journal, pending)

    async def drive(self, journal: Journal, pending: Pending) -> Outcome:
        """Finish the change or take it back; `files` and `handlers` of the outcome are the caller's to add."""
        if pending.step is Step.UNDOING:
            return await self._undo(journal, pending, resumed=True)
        try:
            pending = await self._write(journal, pending)
        except Refused as error:
            return await self._withdraw(journal, pending, error)
        proof = await self._serve(journal, pending, undo=False)
        if proof.good:
            await self._finish(pending, undone=False)
            return self._outcome(Verdict.CHANGED, message=proof.message)
        log.error("change proven bad", extra={"runtime": pending.name, "why": proof.message})
        pending = msgspec.structs.replace(pending, step=Step.UNDOING, commit=None, restarts=0, reason=proof.message)
        journal = await self._save(journal, pending)
        return await self._undo(journal, pending)

    # Files

    async def _write(self, journal: Journal, pending: Pending) -> Pending:
        """Bring every file to `after`. Raises Refused with nothing said about those already written."""
        if pending.step is Step.WRITTEN:
            return pending
        await asyncio.to_thread(self._write_files, pending)
        pending = msgspec.structs.replace(pending, step=Step.WRITTEN, commit=self._clock.monotonic(), boot=self._boot)
        await self._save(journal, pending)
        return pending

    def _write_files(self, pending: Pending) -> None:
        if self._dead_man is not None:
            self._dead_man.prepare(pending)  # what it needs of the disk, it needs before anything is changed
        for file in pending.files:
            self._put(file, file.before, file.after)

    def _put(self, file: PendingFile, old: str, new: str) -> None:
        """From `old` to `new`, unless it is `new` already. Raises Refused."""
        now = self._now(file)
        if now == new:
            return
        if now != old and self._undoing.torn(file):
            old = now
        data, aside = self._state.bytes_of(new), self._temporary(file.path)
        writing.replace(self._host, file.path, old, data, temporary_in=aside, trace=self._trace, mode=file.mode)

    def _temporary(self, path: str) -> Path:
        """The parent of the file's directory: no import of the directory matches there."""
        return self._host.local(path).parent.parent

    def _now(self, file: PendingFile) -> str:
        try:
            return digest(writing.read(self._host.local(file.path)))
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{file.path}: {error.strerror}") from error

    def _written(self, pending: Pending) -> list[PendingFile]:
        """Files that hold something of the change."""
        changed = [file for file in pending.files if file.after != file.before]
        return [
            file
            for file in changed
            if self._now(file) == file.after or self._undoing.torn(file) or self._undoing.holds_ours(pending, file)
        ]

    async def _withdraw(self, journal: Journal, pending: Pending, error: Refused) -> Outcome:
        """A write failed: put back those that were written; the daemon has seen none of it on purpose."""
        log.warning("change withdrawn", extra={"runtime": pending.name, "why": error.message})
        undone = False
        if await asyncio.to_thread(self._written, pending):
            pending = msgspec.structs.replace(pending, step=Step.UNDOING, commit=None, restarts=0, reason=error.message)
            undo = await self._undo(await self._save(journal, pending), pending)
            undone = undo.reason is not Code.NOT_WRITABLE
        else:
            await self._finish(pending, undone=True)
        return replace(error.outcome(), restarted=self._restarted, outage=self._outage, undone=undone)

    # The daemon

    async def _serve(self, journal: Journal, pending: Pending, *, undo: bool) -> Proof:
        """Make the daemon run what is on disk, and prove it. Offline there is nothing to do."""
        prover = self._prover
        if prover is None:
            return Proof(True)
        expected = expectation_of_undo(pending) if undo else expectation(pending)
        commit = pending.commit if pending.boot == self._boot and pending.commit is not None else 0.0
        try:
            state = await prover.settled()
        except SystemdError as error:
            return Proof(False, str(error))
        if undo and state.active_state == "active" and state.invocation_id == pending.began:
            return Proof(True, "the daemon has seen nothing of the change")
        if state.stopped_on_purpose:
            return Proof(True, "a person stopped containerd; what is on disk is for its next start")
        since = self._clock.monotonic()
        old = state.active_state == "active" and state.active_enter_monotonic < commit
        asked = pending.restarts > 0 and state.invocation_id != pending.invocation
        if asked or (state.active_state == "active" and not old):
            proof = await prover.prove(expected, commit, since, "")
            if proof.good or asked:
                return proof
        pending = msgspec.structs.replace(pending, invocation=state.invocation_id)
        return await self._restart(journal, pending, prover, undo=undo)

    async def _restart(self, journal: Journal, pending: Pending, prover: Prover, *, undo: bool) -> Proof:
        if pending.restarts >= RESTARTS_MAX:
            return Proof(False, "containerd was restarted as often as one change may")
        journal = await self._save(journal, msgspec.structs.replace(pending, restarts=pending.restarts + 1))
        guarded = self._dead_man is not None and not undo
        guard = asyncio.create_task(self._guard()) if guarded else None
        since = self._clock.monotonic()
        self._planned_outage(True)
        try:
            if guard is not None:
                await self._arm()
            since = self._clock.monotonic()
            self._restarted = True
            expected = expectation_of_undo(pending) if undo else expectation(pending)
            proof = await prover.restart_and_prove(expected, since)
        except SystemdError as error:
            proof = Proof(False, f"the dead-man switch could not be armed: {error}")
        finally:
            self._outage += self._clock.monotonic() - since
            self._planned_outage(False)
            if guard is not None:
                guard.cancel()
                await asyncio.gather(guard, return_exceptions=True)
        self._trace("proven")
        return proof

    async def _guard(self) -> None:
        """While we live and wait for a slow start, the host must not undo."""
        while True:
            await asyncio.sleep(REARM)
            await self._arm()

    async def _arm(self) -> None:
        if self._dead_man is not None:
            await self._dead_man.arm(early=self._timing.dead_man_early, late=self._timing.dead_man)

    # The way back

    async def _undo(self, journal: Journal, pending: Pending, *, resumed: bool = False) -> Outcome:
        """Bytes back where they still are ours, one restart, both errors told.

        Where nothing had to be put back, because somebody has rewritten the file meanwhile, a daemon that serves what
        it served before needs no restart. `resumed`: another process may have put something back already.
        Bytes that cannot be put back now (a full disk) stay pending, and the dead-man switch stays armed: it has
        its copies already.
        """
        left, wrote = [], resumed
        try:
            journal, pending = await self._follow(journal, pending)
            for file in reversed(pending.files):
                try:
                    there = await asyncio.to_thread(self._now, file)
                    await asyncio.to_thread(self._put, file, file.after, file.before)
                    wrote = wrote or there != file.before
                except Refused as error:
                    if error.code is Code.NOT_WRITABLE:
                        raise
                    left.append(error.message)
        except Refused as error:
            text = f"{pending.reason}; not taken back yet: {error.message}"
            return self._outcome(Verdict.BROKEN, Code.NOT_WRITABLE, text)
        if pending.commit is None:
            commit = self._clock.monotonic() if wrote else NOTHING_PUT_BACK
            pending = msgspec.structs.replace(pending, commit=commit, boot=self._boot)
            journal = await self._save(journal, pending)
        proof = await self._serve(journal, pending, undo=True)
        message = pending.reason
        if left:
            message += f"; not taken back: {'; '.join(left)}"
        if not proof.good:
            change = "" if message == proof.message else f"; with the change: {message}"
            message = (
                f"the change was not the cause, the old configuration does not serve either: {proof.message}{change}"
            )
        await self._finish(pending, undone=not left)
        return self._outcome(Verdict.BROKEN, Code.VERIFY_FAILED, message, undone=not left)

    async def _follow(self, journal: Journal, pending: Pending) -> tuple[Journal, Pending]:
        """To files that somebody edited since the change. Raises Refused(NotWritable)."""
        try:
            followed = await asyncio.to_thread(self._undoing.follow, pending)
        except Refused as error:
            if error.code is Code.NOT_WRITABLE:
                raise
            return journal, pending  # kept bytes are lost: each file says so by itself
        if followed == pending:
            return journal, pending
        return await self._save(journal, followed), followed

    # The journal

    async def _save(self, journal: Journal, pending: Pending | None) -> Journal:
        journal = msgspec.structs.replace(journal, pending=pending)
        await asyncio.to_thread(self._state.save, journal)
        return journal

    async def _finish(self, pending: Pending, *, undone: bool) -> None:
        """The journal without the change. After an undo the host holds what it held before.

        The dead-man switch goes first: what is proven must not be taken back.
        """
        if self._dead_man is not None:
            await self._dead_man.disarm()
        await asyncio.to_thread(self._close, pending, undone=undone)

    def _close(self, pending: Pending, *, undone: bool) -> None:
        for file in pending.files:
            writing.clean(self._host, file.path, self._temporary(file.path))
        journal = self._state.load()
        runtimes = dict(journal.runtimes)
        held = Held(uid=pending.uid, handlers=pending.written) if pending.operation == "apply" else None
        held = pending.previous if undone else held
        runtimes.pop(pending.name, None)
        if held is not None:
            runtimes[pending.name] = held
        gone = [posixpath.dirname(file.path) for file in pending.files if not self._host.exists(file.path)]
        made = directories.tidy(self._host, journal.directories, gone, self._trace)
        self._state.save(Journal(runtimes=runtimes, directories=made if runtimes else ()))
        self._trace("forget")
        self._state.forget()

    def _outcome(
        self, verdict: Verdict, reason: Code | None = None, message: str = "", *, undone: bool = False
    ) -> Outcome:
        outage = round(self._outage, 3)
        return Outcome(verdict, reason, message, restarted=self._restarted, undone=undone, outage=outage)
