"""A loop whose clock runs faster than the wall's: the product's own deadlines stand, and are over sooner.

To what runs on it, sockets and servers are so many times slower than they are.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout / self._speed)


class FastLoop(asyncio.SelectorEventLoop):
    def __init__(self, speed: float) -> None:
        self.speed = speed
        super().__init__(_Selector(speed))

    def time(self) -> float:
        return time.monotonic() * self.speed


class LoopClock:
    """The `Clock` of the running loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return datetime.now(UTC)


def run(main: Coroutine[Any, Any, T], *, speed: float) -> T:
    """As `asyncio.run`, with a clock that is `speed` times as fast."""
    with asyncio.Runner(loop_factory=lambda: FastLoop(speed)) as runner:
        return runner.run(main)
