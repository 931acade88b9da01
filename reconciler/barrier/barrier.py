"""The retry barrier: what needs a resource that comes and goes waits here until it is back (design section 5)."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from reconciler.barrier.errors import BarrierFailed, BarrierTimeout, ErrorClass, classify
from reconciler.cri.api import CriError

log = logging.getLogger(__name__)

T = TypeVar("T")

ADMITTED = 4
"""Waiters let through at once when the barrier opens: a daemon that has just started is not stormed."""
BACKOFF_BASE = 0.1
BACKOFF_MAX = 5.0
"""Seconds between two tries of one operation; full jitter."""


class State(enum.StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"


class BarrierMetrics(Protocol):
    """What is counted; reasons are from a closed set."""

    def closed(self, reason: str) -> None: ...
    def opened(self, seconds: float) -> None:
        """After how many seconds the barrier opened."""

    def waited(self, seconds: float) -> None: ...
    def retried(self, reason: str) -> None: ...


Listener = Callable[[State, State, str], None]
"""`(before, after, reason)`; synchronous, must not raise."""


class RetryBarrier:
    """Begins closed. Whoever probes the resource opens, closes and fails it; callers close it by their errors."""

    def __init__(self, name: str, *, rng: random.Random, metrics: BarrierMetrics | None = None) -> None:
        self.name = name
        self.state = State.CLOSED
        self.reason = "Unknown"
        self.identity = ""
        """Of the process that it was last open for."""
        self.openings = 0
        self._rng = rng
        self._metrics = metrics
        self._moved = asyncio.Event()
        self._admission = asyncio.Semaphore(ADMITTED)
        self._listeners: list[Listener] = []
        self._since: float | None = None
        self.opened_at: float | None = None
        """Loop time of the last opening."""

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def open(self, identity: str) -> None:
        """The resource serves, as the process `identity`."""
        if self.state is State.OPEN and identity == self.identity:
            return
        self.identity = identity
        self.openings += 1
        self.opened_at = _now()
        self._move(State.OPEN, "Serving")

    def close(self, reason: str) -> None:
        """The resource is away for now."""
        if self.state is not State.CLOSED:
            self._move(State.CLOSED, reason)

    def fail(self, reason: str) -> None:
        """Retrying cannot help; waiting callers are told."""
        if self.state is not State.FAILED or self.reason != reason:
            self._move(State.FAILED, reason)

    async def wait_open(self, *, timeout: float) -> None:
        """Raises BarrierFailed, or BarrierTimeout after `timeout` seconds."""
        begun = _now()
        try:
            async with asyncio.timeout(timeout):
                while self.state is State.CLOSED:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError as error:
            raise BarrierTimeout(f"{self.name} is closed ({self.reason}) for {timeout:g} s") from error
        finally:
            if self._metrics is not None and _now() > begun:
                self._metrics.waited(_now() - begun)
        if self.state is State.FAILED:
            raise BarrierFailed(f"{self.name}: {self.reason}")

    async def call(self, operation: Callable[[], Awaitable[T]], *, deadline: float, idempotent: bool = True) -> T:
        """Run `operation` when open; again after a retryable failure, until `deadline` seconds are over.

        An operation that is not idempotent is tried again only if it was refused before it could begin
        (never here: a broken connection does not tell), so its first failure is raised.
        Raises BarrierTimeout, BarrierFailed, or the operation's CriError of any other class.
        """

        def again(error: BaseException) -> bool:
            return idempotent and isinstance(error, CriError) and classify(error) is ErrorClass.RETRYABLE

        retrying = AsyncRetrying(
            retry=retry_if_exception(again), wait=self._backoff, sleep=asyncio.sleep, before_sleep=self._count
        )
        try:
            async with asyncio.timeout(deadline):
                return await retrying(self._attempt, operation, deadline)
        except TimeoutError as error:
            raise BarrierTimeout(f"{self.name}: not done within {deadline:g} s ({self.reason})") from error

    async def _attempt(self, operation: Callable[[], Awaitable[T]], deadline: float) -> T:
        if self.state is State.OPEN:
            return await self._run(operation)
        await self.wait_open(timeout=deadline)
        async with self._admission:
            return await self._run(operation)

    async def _run(self, operation: Callable[[], Awaitable[T]]) -> T:
        openings = self.openings
        try:
            return await operation()
        except CriError as error:
            if openings == self.openings:  # not the late failure of a call to the process before
                self._judge(error)
            raise

    def _judge(self, error: CriError) -> None:
        match classify(error):
            case ErrorClass.RETRYABLE:
                self.close("CallFailed")
            case ErrorClass.TERMINAL:
                self.fail("CRIMissing")
            case _:
                pass

    def _backoff(self, state: RetryCallState) -> float:
        return self._rng.uniform(0, min(BACKOFF_BASE * 2.0 ** (state.attempt_number - 1), BACKOFF_MAX))

    def _count(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if self._metrics is not None and isinstance(error, CriError):
            self._metrics.retried(error.code.name)

    def _move(self, state: State, reason: str) -> None:
        before, self.state, self.reason = self.state, state, reason
        log.info("barrier", extra={"barrier": self.name, "before": before, "after": state, "reason": reason})
        if state is State.OPEN:
            if self._metrics is not None and self._since is not None:
                self._metrics.opened(_now() - self._since)
            self._since = None
        elif self._since is None:
            self._since = _now()
            if self._metrics is not None:
                self._metrics.closed(reason)
        self._moved.set()
        for listener in self._listeners:
            listener(before, state, reason)


def _now() -> float:
    return asyncio.get_running_loop().time()
