"""`HostConfig`: the one door to containerd's configuration of a host (design section 6)."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from reconciler.api.clock import Clock, SystemClock
from reconciler.api.noderuntime import RevisionData
from reconciler.cri.api import Cri, CriError
from reconciler.hostconfig import directories, writing
from reconciler.hostconfig.causes import Outside, nothing_outside
from reconciler.hostconfig.deadman import DeadMan
from reconciler.hostconfig.distribution import edited_file
from reconciler.hostconfig.dump import Dump
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.last_good import LastGood
from reconciler.hostconfig.lock import host_lock
from reconciler.hostconfig.model import Code, Findings, Outcome, Refused, Timing, Verdict
from reconciler.hostconfig.planner import Planner
from reconciler.hostconfig.planning import holds
from reconciler.hostconfig.proof import Prover
from reconciler.hostconfig.proven import Proven
from reconciler.hostconfig.rescue import Rescue
from reconciler.hostconfig.snapshot import Plan
from reconciler.hostconfig.state import Held, Journal, Pending, State, pending_files
from reconciler.hostconfig.transaction import Transaction
from reconciler.hostconfig.version import parse, supported
from reconciler.hostconfig.writing import Trace
from reconciler.systemd.api import Systemd, SystemdError

Fence = Callable[[], Awaitable[None]]
"""Awaited right before the first write; raises to abort with nothing changed."""

T = TypeVar("T")

STATE_DIR = "/var/lib/runtime-reconciler"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Of the host: a container's own /proc may show another one's (a node that is itself a container)."""


class HostConfig:
    """Changes containerd's configuration below `root` and proves that the result serves.

    `config_path` is the daemon's `--config` ("" for the default, which may be missing), `version` the
    daemon's version (`1.6.20`). Every path is the host's; links and imports are resolved inside `root`.
    Without `systemd` nothing is restarted; without `cri` nothing is asked of the daemon; with `dump` every
    prediction is compared with what the host's own binary makes of the files; `outside` names what else keeps
    containerd from serving. At most one change at a time per host: a lock below `state_dir` is held over edit,
    restart and proof.
    """

    def __init__(
        self,
        root: Path,
        config_path: str = "",
        version: str = "",
        state_dir: str = STATE_DIR,
        *,
        systemd: Systemd | None = None,
        cri: Cri | None = None,
        unit: str = "containerd.service",
        clock: Clock | None = None,
        timing: Timing | None = None,
        boot_id: Callable[[], str] | None = None,
        dump: Dump | None = None,
        outside: Outside = nothing_outside,
        trace: Trace = writing.nothing,
    ) -> None:
        """Raises Refused(UnsupportedVersion) on a `version` that cannot be read. `trace` sees every step."""
        self._host = HostRoot(root)
        self._config_path = edited_file(self._host, config_path)
        self._version = parse(version)
        self._state = State(self._host.local(state_dir), trace)
        self._clock, self._timing, self._trace = clock or SystemClock(), timing or Timing(), trace
        self._cri, self._outside = cri, outside
        self._boot_id = boot_id or self._host_boot_id
        self._prover = self._dead_man = None
        if systemd is not None:
            self._prover = Prover(systemd, cri, self._host, unit, self._clock, self._timing, trace, outside=outside)
            self._dead_man = DeadMan(systemd, self._host, self._state, state_dir, unit, trace)
        self._busy = False
        self._last_good = LastGood(self._host, self._state.folder)
        self._planner = Planner(
            self._host, self._config_path, self._version, self._state, dump=dump, last_good=self._last_good
        )
        self._proven = Proven(self._host, self._state.folder, version, trace)
        self.rescue = Rescue(
            self._host,
            self._state,
            self._proven,
            self._planner.snapshot,
            prover=self._prover,
            cri=cri,
            clock=self._clock,
            timing=self._timing,
        )

    @property
    def busy(self) -> bool:
        """True between our stop of containerd and the proof (or undo): a planned outage."""
        return self._busy

    def check(self) -> Findings:
        """Would the files on disk start and serve CRI, and which handlers. Blocking file reads; writes nothing.

        Raises Refused(UnsupportedVersion).
        """
        supported(self._version)
        snapshot = self._planner.snapshot()
        return snapshot.examine(snapshot.effective())

    def journal(self) -> dict[str, str]:
        """Runtimes that the host holds something of: name → UID of the NodeRuntime that asked for it."""
        return {name: held.uid for name, held in self._state.load().runtimes.items()}

    def written(self, name: str) -> frozenset[str]:
        """Handlers that we wrote for runtime `name` and have not taken out. Blocking file read.

        Raises Refused(ForeignChange) on a journal that cannot be read.
        """
        held = self._state.load().runtimes.get(name)
        return frozenset() if held is None else frozenset(held.handlers)

    def plan(self, name: str, data: RevisionData) -> Outcome:
        """What `apply` would do; writes nothing. Blocking file reads: call it in a thread."""
        try:
            plan = self._planner.apply(name, data)
        except Refused as error:
            return error.outcome()
        return _described(plan, Outcome(Verdict.CHANGED if plan.files else Verdict.UNCHANGED))

    async def apply(self, name: str, uid: str, data: RevisionData, *, fence: Fence | None = None) -> Outcome:
        """Write the handlers of `data` for runtime `name`, restart once, prove; undo when proven bad.

        `changed`/`unchanged`: CRI serves the handlers. `refused`: nothing changed, `reason` says why
        (Busy, InvalidToml, PendingForeignChange, HandlerConflict, …): may be tried again.
        `broken` with `undone`: tried, proven bad, taken back (VerifyFailed). Exceptions of `fence` pass through.
        Cancellation: finishes or undoes first, then raises CancelledError.
        """
        return await self._change("apply", name, uid, lambda: self._planner.apply(name, data), fence)

    async def remove(self, name: str, *, fence: Fence | None = None) -> Outcome:
        """Take out what was added for `name`; `unchanged` when there is nothing. Otherwise as `apply`."""
        return await self._change("remove", name, "", lambda: self._planner.remove(name), fence)

    async def repair(self) -> Outcome:
        """Mend what is known to be mendable (`Finding.repairable`); `unchanged` when there is nothing."""
        outcome = await self._change("repair", "", "", self._planner.repair, None)
        return replace(outcome, verdict=Verdict.REPAIRED) if outcome.verdict is Verdict.CHANGED else outcome

    async def recover(self) -> list[Outcome]:
        """Finish or roll back what a killed process left behind; call it at start. Also done before each change."""

        async def work() -> list[Outcome]:
            async with host_lock(self._state.lock, wait=self._timing.lock_wait):
                return await self._recover()

        try:
            return await _to_its_end(work())
        except Refused as error:
            return [error.outcome()]

    # One change

    async def _change(
        self, operation: str, name: str, uid: str, plan: Callable[[], Plan], fence: Fence | None
    ) -> Outcome:
        async def work() -> Outcome:
            async with host_lock(self._state.lock, wait=self._timing.lock_wait):
                await self._finish_what_was_begun()
                return await self._begin(operation, name, uid, await asyncio.to_thread(plan), fence)

        try:
            supported(self._version)
            return await _to_its_end(work())
        except Refused as error:
            return error.outcome()

    async def _begin(self, operation: str, name: str, uid: str, plan: Plan, fence: Fence | None) -> Outcome:
        journal = await asyncio.to_thread(self._state.load)
        pending = await self._pending(operation, name, uid, plan, journal)
        if not plan.files and not await self._stale(plan):
            return await self._nothing_to_do(operation, name, uid, plan, journal, fence)
        await self._able_to_start_again()
        await asyncio.to_thread(self._writable, plan)
        if fence is not None:
            await fence()
        runtimes = dict(journal.runtimes)
        if operation == "apply":
            runtimes[name] = Held(uid=uid, handlers=tuple(sorted(plan.written)))
        made = await asyncio.to_thread(directories.missing, self._host, [file.path for file in plan.files])
        made = tuple(sorted({*journal.directories, *made}))
        journal = Journal(runtimes=runtimes, directories=made, pending=pending)
        await asyncio.to_thread(self._lay_down, plan, journal)
        outcome = await self._transaction().drive(journal, pending)
        await asyncio.to_thread(self._planner.keep_last_good)
        if not outcome.good:
            return replace(outcome, findings=plan.now.findings)
        return _described(plan, outcome)

    async def _able_to_start_again(self) -> None:
        """Raises Refused: a daemon that serves is not stopped when something else would keep it from serving again."""
        if self._prover is None or self._cri is None or not (causes := await self._outside()):
            return
        try:
            await self._cri.version(timeout=self._timing.call)
        except CriError:
            return  # there is nothing to lose
        raise Refused(Code.BUSY, f"containerd would not come back in time from a restart: {'; '.join(causes)}")

    def _writable(self, plan: Plan) -> None:
        for file in plan.files:
            writing.probe(self._host, file.path)

    def _lay_down(self, plan: Plan, journal: Journal) -> None:
        """All that the change needs of the state directory, before its first write."""
        self._proven.forget()  # of files that are about to be others
        self._last_good.forget()
        self._state.keep(plan.files)
        self._state.save(journal)

    async def _nothing_to_do(
        self, operation: str, name: str, uid: str, plan: Plan, journal: Journal, fence: Fence | None
    ) -> Outcome:
        """The journal alone may have to follow: an adopted block, a removal of what somebody else took away."""
        runtimes = dict(journal.runtimes)
        if operation == "remove":
            runtimes.pop(name, None)
        elif operation == "apply" and plan.ours and await asyncio.to_thread(holds, self._planner.snapshot(), name):
            runtimes[name] = Held(uid=uid, handlers=tuple(sorted(plan.written)))
        if runtimes != journal.runtimes:
            if fence is not None:
                await fence()
            await asyncio.to_thread(self._note, journal, runtimes)
        await asyncio.to_thread(self._planner.keep_last_good)
        return _described(plan, Outcome(Verdict.UNCHANGED))

    def _note(self, journal: Journal, runtimes: dict[str, Held]) -> None:
        made = directories.tidy(self._host, journal.directories, (), self._trace)
        self._state.save(Journal(runtimes=runtimes, directories=made if runtimes else ()))

    async def _pending(self, operation: str, name: str, uid: str, plan: Plan, journal: Journal) -> Pending:
        """The record of a change with what is served before it. Raises Refused when the daemon is not fit for it."""
        pending = Pending(
            operation=operation,
            name=name,
            uid=uid,
            files=pending_files(plan.files),
            ours=tuple(sorted(plan.ours)),
            written=tuple(sorted(plan.written)),
            gone=tuple(sorted(plan.gone)),
            handlers_before=plan.now.handlers,
            default_runtime=plan.now.default_runtime,
            sockets=plan.sockets,
            boot=self._boot_id(),
            previous=journal.runtimes.get(name),
        )
        if self._prover is None:
            return pending
        try:
            state = await self._prover.settled()
        except SystemdError as error:
            raise Refused(Code.BUSY, f"systemd cannot be asked: {error}") from error
        if operation == "apply" and state.stopped_on_purpose:
            raise Refused(Code.BUSY, "containerd was stopped by a person; it is not started for a change")
        pending = msgspec.structs.replace(pending, began=state.invocation_id, invocation=state.invocation_id)
        return await self._observed(operation, plan, pending)

    async def _observed(self, operation: str, plan: Plan, pending: Pending) -> Pending:
        if self._cri is None:
            return pending
        call = self._timing.call
        try:
            status = await self._cri.status(timeout=call)
            sandboxes = await self._cri.sandboxes(timeout=call)
        except CriError as error:
            if operation == "apply":
                raise Refused(Code.BUSY, f"CRI does not serve now: {error.message}") from error
            return pending
        if plan.now.serves and operation != "repair":
            await asyncio.to_thread(self._no_foreign_change, plan, frozenset(status.handlers))
        ready = tuple(sorted(sandbox.id for sandbox in sandboxes if sandbox.ready))
        return msgspec.structs.replace(pending, network_ready=status.network_ready, sandboxes=ready)

    def _no_foreign_change(self, plan: Plan, running: frozenset[str]) -> None:
        """Raises Refused: our restart would bring edits of others to life, and be blamed for them (design 6.2)."""
        held = self._state.load().runtimes.values()
        mine = plan.ours | plan.gone | {handler for one in held for handler in one.handlers}
        disk = frozenset(plan.now.handlers)
        if difference := (disk ^ running) - mine:
            names = ", ".join(sorted(difference))
            raise Refused(
                Code.PENDING_FOREIGN_CHANGE, f"on disk and not in force, or the reverse: {names}", plan.now.findings
            )

    async def _stale(self, plan: Plan) -> bool:
        """Files that need no edit, but a daemon that does not serve what they say of ours."""
        if self._cri is None or self._prover is None or not plan.ours:
            return False
        try:
            status = await self._cri.status(timeout=self._timing.call)
        except CriError as error:
            raise Refused(Code.BUSY, f"CRI does not serve now: {error.message}") from error
        return not plan.ours <= set(status.handlers)

    async def _finish_what_was_begun(self) -> None:
        """Raises Refused(NotWritable) when it cannot be brought to its end now: the journal has room for one change."""
        outcomes = await self._recover()
        if (await asyncio.to_thread(self._state.load)).pending is not None:
            raise Refused(Code.NOT_WRITABLE, outcomes[-1].message)

    async def _recover(self) -> list[Outcome]:
        journal = await asyncio.to_thread(self._state.load)
        if journal.pending is None:
            if not journal.runtimes:
                await asyncio.to_thread(self._last_good.forget)
            await asyncio.to_thread(self._state.forget)  # the bytes of a change whose maker died right after closing it
            return []
        outcome = await self._transaction().recover(journal, journal.pending)
        await asyncio.to_thread(self._planner.keep_last_good)
        return [outcome]

    def _transaction(self) -> Transaction:
        return Transaction(
            self._host,
            self._state,
            prover=self._prover,
            dead_man=self._dead_man,
            clock=self._clock,
            timing=self._timing,
            boot=self._boot_id(),
            trace=self._trace,
            planned_outage=self._set_busy,
            no_worse=self._planner.no_worse,
        )

    def _host_boot_id(self) -> str:
        try:
            return self._host.read(BOOT_ID).decode().strip()
        except OSError:
            return ""

    def _set_busy(self, value: bool) -> None:
        self._busy = value


def _described(plan: Plan, outcome: Outcome) -> Outcome:
    files = tuple(file.change() for file in sorted(plan.files, key=lambda file: posixpath.normpath(file.path)))
    return replace(outcome, files=files, handlers=plan.then.handlers, findings=plan.then.findings)


async def _to_its_end(work: Awaitable[T]) -> T:
    """Await `work` even through a cancellation, which is raised after it: a change is finished or undone."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        raise
