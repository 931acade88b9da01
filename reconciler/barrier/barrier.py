"""The retry barrier (design section 5): one resource that comes and goes, and the calls that wait for it."""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from reconciler.barrier.errors import ErrorClass, classify
from reconciler.cri.api import CriError

T = TypeVar("T")

ABREAST = 4
"""Waiting callers that are let through at once when the barrier opens."""
TURN = 1.0
"""Seconds after which a caller that was let through no longer holds up the next one: a kill may take minutes."""
BACKOFF_MIN = 0.05
BACKOFF_MAX = 2.0
"""Seconds between tries of one operation, with full jitter."""


class State(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    FAILED = "failed"
    """Retrying cannot help."""


class BarrierMetrics(Protocol):
    """What is counted."""

    def closed(self, reason: str) -> None: ...
    def opened(self, seconds: float) -> None: ...
    def waited(self, seconds: float) -> None: ...
    def retried(self, reason: str) -> None: ...


class BarrierTimeout(Exception):
    """The deadline passed before the operation succeeded; the last error is the cause."""


class BarrierFailed(Exception):
    """The resource is up and cannot do what is asked: retrying does not help."""


class RetryBarrier:
    """Starts closed. Times in seconds of the running loop's clock."""

    def __init__(self, *, rng: random.Random, metrics: BarrierMetrics | None = None) -> None:
        self.state = State.CLOSED
        self.reason = "Starting"
        self._rng = rng
        self._metrics = metrics
        self._opened = asyncio.Event()
        self._gate = asyncio.Semaphore(ABREAST)
        self._since: float | None = None
        self._epoch = 0
        """Counts the openings: a call to the process before says nothing about the one after."""
        self._listeners: list[Callable[[State], None]] = []

    def listen(self, listener: Callable[[State], None]) -> None:
        """`listener(state)` is called at every change, synchronously."""
        self._listeners.append(listener)

    def open(self) -> None:
        """CRI answers, and the process is the new one."""
        if self.state is State.OPEN:
            return
        if self._metrics is not None and self._since is not None:
            self._metrics.opened(_now() - self._since)
        self._since = None
        self._epoch += 1
        self._set(State.OPEN, "Serving")
        self._opened.set()

    def close(self, reason: str) -> None:
        """`reason` is CamelCase and from a closed set: SocketGone, ProcessChanged, Outage, Starting …"""
        if self.state is State.CLOSED and self.reason == reason:
            return
        self._opened.clear()
        self._begins(reason)
        self._set(State.CLOSED, reason)

    def fail(self, reason: str) -> None:
        """The resource is up and cannot serve; waiting callers get BarrierFailed."""
        if self.state is State.FAILED:
            return
        self._begins(reason)
        self._set(State.FAILED, reason)
        self._opened.set()

    def down(self) -> float:
        """Seconds that the present outage has lasted; 0 without one."""
        return 0.0 if self._since is None else _now() - self._since

    async def wait_open(self) -> None:
        """Raises BarrierFailed when it fails."""
        while self.state is not State.OPEN:
            if self.state is State.FAILED:
                raise BarrierFailed(self.reason)
            await self._opened.wait()

    async def call(self, operation: Callable[[], Awaitable[T]], *, deadline: float, idempotent: bool = True) -> T:
        """Run `operation` when open; after an outage wait and run it again, until `deadline` seconds are over.

        An operation that is not idempotent is not run again once it was sent. Raises BarrierTimeout,
        BarrierFailed, or CriError for one pod's trouble.
        """
        begun = _now()
        last: list[CriError] = []

        def jitter(state: RetryCallState) -> float:
            return float(self._rng.uniform(0.0, spread(state)))

        spread = wait_random_exponential(multiplier=BACKOFF_MIN, max=BACKOFF_MAX)
        try:
            async with asyncio.timeout(deadline):
                async for attempt in AsyncRetrying(retry=retry_if_exception_type(_Again), wait=jitter, reraise=True):
                    with attempt:
                        return await self._once(operation, begun, last, idempotent)
        except TimeoutError as error:
            cause = last[-1] if last else error
            raise BarrierTimeout(f"not done within {deadline:.0f} s: {cause}") from cause
        raise AssertionError("the loop returns or raises")

    async def _once(
        self, operation: Callable[[], Awaitable[T]], begun: float, last: list[CriError], idempotent: bool
    ) -> T:
        if self.state is State.OPEN:
            return await self._run(operation, last, idempotent)
        await self.wait_open()
        async with self._turn():
            await self.wait_open()
            if self._metrics is not None:
                self._metrics.waited(_now() - begun)
            return await self._run(operation, last, idempotent)

    async def _run(self, operation: Callable[[], Awaitable[T]], last: list[CriError], idempotent: bool) -> T:
        epoch = self._epoch
        try:
            return await operation()
        except CriError as error:
            if classify(error) is not ErrorClass.OUTAGE:
                raise
            last.append(error)
            if epoch == self._epoch:
                self.close("CallFailed")
            if not idempotent:
                raise
            if self._metrics is not None:
                self._metrics.retried("outage")
            raise _Again from error

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One of the few places at the gate, for at most TURN seconds."""
        await self._gate.acquire()
        release = asyncio.get_running_loop().call_later(TURN, self._gate.release)
        try:
            yield
        finally:
            if not release.cancelled() and release.when() > _now():
                release.cancel()
                self._gate.release()

    def _begins(self, reason: str) -> None:
        """An outage begins, unless it is one already."""
        if self._since is None:
            self._since = _now()
            if self._metrics is not None:
                self._metrics.closed(reason)

    def _set(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
        for listener in self._listeners:
            listener(state)


class _Again(Exception):
    """Inside only: the operation met an outage."""


def _now() -> float:
    return asyncio.get_running_loop().time()
