"""Restart containerd and prove that it serves what the files say (design 6.8 and 6.10)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from dataclasses import dataclass

from reconciler.api.clock import Clock
from reconciler.cri.api import Code, Cri, CriError, Status
from reconciler.hostconfig.causes import Outside, nothing_outside
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Timing
from reconciler.hostconfig.state import Pending
from reconciler.hostconfig.writing import Trace
from reconciler.systemd.api import Systemd, SystemdError, UnitState

NOT_INITIALIZED = "server is not initialized yet"
START_MARGIN = 10.0
"""Seconds beyond the unit's own start timeout after which systemd has certainly decided."""
SLOW = 2.0
"""Seconds without CRI after which a cause outside of the configuration is looked for; 0.1 to 0.5 are usual."""


class Sign(enum.Enum):
    """What one look at the daemon says."""

    GOOD = "good"
    BAD = "bad"
    STARTING = "starting"
    """Alive and not through: waited for up to the unit's start timeout; undoing it would only repeat it."""
    SILENT = "silent"


NOTHING_PUT_BACK = 0.0
"""Time of the commit of an undo that found nothing of the change on the disk."""


@dataclass(frozen=True)
class Proof:
    """`message` says why it is not good, or why a good one took long; known causes outside first."""

    good: bool
    message: str = ""


@dataclass(frozen=True)
class Expectation:
    """What must be true once the new process serves."""

    ours: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    default_runtime: str = ""
    network_ready: bool = False
    sandboxes: frozenset[str] = frozenset()
    sockets: tuple[str, ...] = ()


def expectation(pending: Pending) -> Expectation:
    """Of the change itself."""
    return Expectation(
        ours=frozenset(pending.ours),
        gone=frozenset(pending.gone),
        default_runtime=pending.default_runtime,
        network_ready=pending.network_ready,
        sandboxes=frozenset(pending.sandboxes),
        sockets=pending.sockets,
    )


def expectation_of_undo(pending: Pending) -> Expectation:
    """Of the state before the change: what was served then is served again.

    Where nothing had to be put back the files are somebody else's, who may have taken other handlers out as well:
    another restart would bring none of them.
    """
    gone = frozenset(pending.ours) - frozenset(pending.handlers_before)
    if pending.commit == NOTHING_PUT_BACK:
        return Expectation(gone=gone)
    return Expectation(
        ours=frozenset(pending.handlers_before),
        gone=gone,
        default_runtime=pending.default_runtime,
        network_ready=pending.network_ready,
    )


class Prover:
    """Looks at one unit and its CRI; asks for a restart when the running process is too old."""

    def __init__(
        self,
        systemd: Systemd,
        cri: Cri | None,
        host: HostRoot,
        unit: str,
        clock: Clock,
        timing: Timing,
        trace: Trace,
        *,
        outside: Outside = nothing_outside,
    ) -> None:
        self._systemd, self._cri, self._host, self._outside = systemd, cri, host, outside
        self._unit, self._clock, self._timing, self._trace = unit, clock, timing, trace

    async def unit(self) -> UnitState:
        """Raises SystemdError."""
        return await self._systemd.unit(self._unit)

    async def settled(self) -> UnitState:
        """The unit once no job is queued: somebody's restart may be under way. Raises SystemdError."""
        until = self._clock.monotonic() + self._timing.restart
        state = await self.unit()
        while state.job and self._clock.monotonic() < until:
            await asyncio.sleep(self._timing.poll)
            state = await self.unit()
        return state

    async def restart_and_prove(self, expected: Expectation, since: float) -> Proof:
        """One restart and its proof; what is known to have failed or delayed it besides the files is part of the word.

        `since` is the clock's time of the restart.
        """
        slow = asyncio.create_task(self._why_slow())
        try:
            proof = await self.prove(expected, since, since, await self._restart())
            causes = slow.result() if slow.done() else ()
            if not proof.good:
                causes = causes or await self._outside()
        finally:
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
        return Proof(proof.good, "; ".join(text for text in (*causes, proof.message) if text))

    async def _why_slow(self) -> tuple[str, ...]:
        await asyncio.sleep(SLOW)
        return await self._outside()

    async def _restart(self) -> str:
        """One restart; the start limit is cleared first, for a refused restart has stopped the daemon already.

        The answer is the job's result, or "" when none came in time: then the daemon itself is looked at.
        """
        self._trace("reset-failed")
        with contextlib.suppress(SystemdError):
            await self._systemd.reset_failed(self._unit)
        self._trace("restart")
        try:
            return await self._systemd.restart(self._unit, timeout=self._timing.restart)
        except SystemdError as error:
            return "failed" if error.name == "JobFailed" else ""

    async def prove(self, expected: Expectation, commit: float, since: float, result: str) -> Proof:
        """Wait for good or negative evidence about a process that started after `commit`."""
        if result == "failed":
            return Proof(False, f"systemd could not start {self._unit}")
        soft, hard = since + self._timing.verify, since + self._timing.verify
        while True:
            sign, message, state = await self._look(expected, commit)
            now = self._clock.monotonic()
            if sign is Sign.GOOD:
                return Proof(True)
            if sign is Sign.BAD:
                return Proof(False, message)
            if state is not None:
                hard = max(soft, since + state.timeout_start + START_MARGIN)
            if now >= (hard if sign is Sign.STARTING else soft):
                return Proof(False, message or "containerd gave no answer")
            await asyncio.sleep(self._timing.poll)

    async def _look(self, expected: Expectation, commit: float) -> tuple[Sign, str, UnitState | None]:
        try:
            state = await self.unit()
        except SystemdError as error:
            return Sign.SILENT, str(error), None
        if state.active_state == "failed" or state.sub_state == "auto-restart":
            return Sign.BAD, f"{self._unit} exited ({state.result})", state
        if state.active_state != "active" or state.job:
            return Sign.STARTING, f"{self._unit} is {state.active_state}", state
        if state.active_enter_monotonic < commit:
            return Sign.SILENT, f"{self._unit} still runs the old process", state
        sign, message = await self._ask(expected)
        return sign, message, state

    async def _ask(self, expected: Expectation) -> tuple[Sign, str]:
        if self._cri is None:
            return Sign.GOOD, ""
        try:
            await self._cri.version(timeout=self._timing.call)
            status = await self._cri.status(timeout=self._timing.call)
            sandboxes = await self._cri.sandboxes(timeout=self._timing.call) if expected.sandboxes else []
        except CriError as error:
            if error.code is Code.UNIMPLEMENTED and not error.connection:
                return Sign.BAD, f"containerd runs without its CRI plugin: {error.message}"
            return (Sign.STARTING if NOT_INITIALIZED in error.message else Sign.SILENT), error.message
        if expected.sandboxes and not expected.sandboxes & {sandbox.id for sandbox in sandboxes}:
            return Sign.BAD, "none of the pods of before is known after the restart"
        return await self._judge(expected, status)

    async def _judge(self, expected: Expectation, status: Status) -> tuple[Sign, str]:
        served = set(status.handlers)
        if missing := expected.ours - served:
            return Sign.BAD, f"CRI does not serve {', '.join(sorted(missing))}"
        if left := expected.gone & served:
            return Sign.BAD, f"CRI still serves {', '.join(sorted(left))}"
        if expected.default_runtime and status.default_runtime not in ("", expected.default_runtime):
            return Sign.BAD, f"the default runtime became {status.default_runtime}"
        if not status.runtime_ready:
            return Sign.SILENT, "CRI says that the runtime is not ready"
        if expected.network_ready and not status.network_ready:
            return Sign.SILENT, f"the network is not ready any more: {status.network_reason}"
        for socket in expected.sockets:
            if not await self._listens(socket):
                return Sign.SILENT, f"nothing listens on {socket}"
        return Sign.GOOD, ""

    async def _listens(self, path: str) -> bool:
        try:
            async with asyncio.timeout(self._timing.call):
                _, writer = await asyncio.open_unix_connection(str(self._host.local(path)))
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True
