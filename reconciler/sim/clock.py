"""Virtual time: an event loop that jumps to its next timer instead of waiting, and a wall clock that follows it.

Threads run inline on that loop, and its tasks and futures hash by number instead of by address, because asyncio keeps
them in sets: so a run with the same seed does the same things in the same order, in any process (as long as strings
hash alike, `PYTHONHASHSEED`).
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from reconciler.api.clock import Clock

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Wall time at the start of a virtual run."""


MOMENT_MAX = 50_000
"""Turns of the loop in one moment of virtual time; the busiest moments of large runs take some hundreds."""


class Stalled(Exception):
    """Nothing is left that could ever wake the loop."""


class Livelock(BaseException):
    """Tasks wake each other for ever and no time passes; on a real cluster, as many requests as it can take."""


class VirtualClock:
    """The `Clock` of a virtual loop. `jump` sets the wall clock off, as NTP or a person does."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start
        self.jump = timedelta()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic()) + self.jump


class Skewed:
    """The clock of one machine: its wall time may be `off`, its seconds are as long as everybody's."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self.off = timedelta()

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def now(self) -> datetime:
        return self._inner.now() + self.off


class _Selector(selectors.DefaultSelector):
    """Never waits: what no file descriptor has now, time brings."""

    loop: VirtualLoop
    turns = 0
    """Since time went on last."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self.turns += 1
            if self.turns > MOMENT_MAX:
                raise Livelock(f"{MOMENT_MAX} turns of the loop at {self.loop.time():.3f} s")
            return ready
        self.turns = 0
        if timeout is None:
            raise Stalled("every task waits for something that nobody will do")
        self.loop.advance(timeout)
        return ready


class _Task(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time goes on only when there is nothing to do."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self._now = 0.0
        self._number = 0
        self.on_step: list[Callable[[Context], None]] = []
        """Called with the context of each step of a task, from one await to the next, when it becomes due."""
        super().__init__(selector)
        self.set_task_factory(self._task)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if context is not None:
            for hook in tuple(self.on_step):
                hook(context)
        return super().call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        future.number = self._count()
        return future

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = _Task(work, loop=loop, **options)
        task.number = self._count()
        return task

    def _count(self) -> int:
        self._number += 1
        return self._number

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += max(seconds, 0.0)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Inline: a thread would run in real time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
