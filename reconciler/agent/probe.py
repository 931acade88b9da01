"""Knows at once whether containerd serves: inotify, unit signals, failed calls; a slow poll only as a net."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from reconciler.agent.deps import Deps
from reconciler.barrier.barrier import RetryBarrier, State
from reconciler.barrier.errors import ErrorClass, classify
from reconciler.cri.api import CriError, Status
from reconciler.systemd.api import SystemdError, UnitState

log = logging.getLogger(__name__)

NET = 10.0
"""Seconds between looks when nothing was heard: a net for what no signal tells (a hanging daemon)."""
EAGER = 0.1
"""Seconds between looks while it is closed and something may be coming."""
LOOK = 15.0
"""Seconds for one look: systemd's 5 s twice over, and both calls."""
CALL = 2.0
"""Seconds that Version and Status may take."""


class Probe:
    """Keeps the barrier true. `look` may be called by whoever has just seen a reason to."""

    def __init__(self, deps: Deps, barrier: RetryBarrier, changed: Callable[[], None]) -> None:
        """`changed` is called when version, handlers or the unit's state have changed."""
        self._deps = deps
        self._barrier = barrier
        self._changed = changed
        self._nudge = asyncio.Event()
        self.version = ""
        self.status: Status | None = None
        self.unit: UnitState | None = None
        self.why_missing = ""
        """containerd's own word for why it has no CRI plugin, while it has none."""
        self.looked = False
        """Whether there was a first look: before it nothing can be said."""
        self._invocation = ""
        self._own_word = False
        barrier.listen(self._barrier_changed)

    def nudge(self) -> None:
        """Something may have changed: look now."""
        self._nudge.set()

    def _barrier_changed(self, state: State) -> None:
        """Somebody's call failed: look now. What a look itself has found is no reason for another."""
        if state is State.CLOSED and not self._own_word:
            self.nudge()

    def _close(self, reason: str) -> None:
        self._own_word = True
        self._barrier.close(reason)
        self._own_word = False

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            await self._watch_socket(stack)
            stop = await self._deps.systemd.watch(self._deps.unit, self.nudge)
            stack.push_async_callback(stop)
            while True:
                self._nudge.clear()
                await self._look_in_time()
                pause = NET if self._barrier.state is not State.CLOSED else EAGER
                try:
                    async with asyncio.timeout(pause):
                        await self._nudge.wait()
                except TimeoutError:
                    continue

    async def _watch_socket(self, stack: AsyncExitStack) -> None:
        """An agent that ends because the host has no inotify instance left could not say so."""
        if self._deps.watch is None:
            return
        try:
            await stack.enter_async_context(self._deps.watch(self.nudge))
        except OSError as error:
            log.warning("the socket is not watched", extra={"error": str(error), "instead": f"a look each {NET:g} s"})

    async def _look_in_time(self) -> None:
        """A look that hangs, for whatever reason, counts as no answer: nothing may stop the looking."""
        try:
            async with asyncio.timeout(LOOK):
                await self.look()
        except TimeoutError:
            log.error("a look at containerd did not end", extra={"seconds": LOOK})
            self._deps.cri.close()
            self._close("Hung")

    async def look(self) -> None:
        """Ask systemd and CRI, and set the barrier by their answers."""
        before = self._seen()
        await self._look()
        self.looked = True
        if before != self._seen():
            self._changed()

    def _seen(self) -> tuple[object, ...]:
        return (
            self.looked,
            self.version,
            self.status,
            self.unit,
            self._barrier.state,
            self._barrier.reason,
            self.why_missing,
        )

    async def _look(self) -> None:
        try:
            self.unit = await self._deps.systemd.unit(self._deps.unit)
        except SystemdError as error:
            log.warning("systemd cannot be asked", extra={"error": str(error)})
            self.unit = None
        if self.unit is not None and self._invocation not in ("", self.unit.invocation_id):
            self._invocation = ""
            self._close("ProcessChanged")
            self._deps.cri.close()
        try:
            version = await self._deps.cri.version(timeout=CALL)
            status = await self._deps.cri.status(timeout=CALL)
        except CriError as error:
            self._failed(error)
            return
        if self.version not in ("", version.runtime_version):
            self._deps.replaced()
        self.version, self.status, self.why_missing = version.runtime_version, status, ""
        if self.unit is not None:
            self._invocation = self.unit.invocation_id
        self._barrier.open()

    def _failed(self, error: CriError) -> None:
        self.status = None
        self._deps.cri.close()
        if classify(error) is ErrorClass.TERMINAL:
            self.why_missing = error.message
            self._barrier.fail("CRIMissing")
        elif self.unit is not None and self.unit.active_state == "failed":
            self._close("UnitFailed")
        elif self.unit is not None and self.unit.active_state == "inactive":
            self._close("StoppedByAdmin")
        else:
            self._close("Hung" if classify(error) is ErrorClass.HUNG else "NotServing")
