"""A work queue as controllers need it: one entry a key, one worker a key, delays, backoff, priority.

A key that is added while it is being worked on is queued again when its worker is done. Of several
delays of one key the earliest deadline wins. Low priority (first list, resync) ages, so it never starves.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import random
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

AGEING = 30.0
"""Seconds of waiting that make up for low priority."""
HEAP_SLACK = 16
"""Entries of lifted keys that are not worth a sweep."""


class Priority(enum.IntEnum):
    LOW = 0
    HIGH = 1


class QueueMetrics(Protocol):
    """The field's `workqueue_*`, by the queue's name."""

    def depth(self, name: str, value: int) -> None: ...
    def added(self, name: str) -> None: ...
    def waited(self, name: str, seconds: float) -> None: ...
    def worked(self, name: str, seconds: float) -> None: ...
    def retried(self, name: str) -> None: ...


class ShutDown(Exception):
    """The queue takes and gives nothing any more."""


class WorkQueue(Generic[K]):
    """Times in seconds of the running loop's clock. Bounded by the number of keys there are."""

    def __init__(
        self,
        name: str,
        *,
        rng: random.Random,
        metrics: QueueMetrics | None = None,
        base: float = 0.05,
        max_delay: float = 60.0,
    ) -> None:
        self.name = name
        self._rng = rng
        self._metrics = metrics
        self._base = base
        self._max_delay = max_delay
        self._ready: dict[K, tuple[float, float]] = {}
        """Key → (rank, when it was added)."""
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._working: dict[K, float] = {}
        self._again: dict[K, Priority] = {}
        self._due: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[K, int] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K, *, priority: Priority = Priority.HIGH) -> None:
        """Queue `key` now; a higher priority than it has lifts it."""
        if self._closed:
            return
        if key in self._working:
            self._again[key] = max(priority, self._again.get(key, Priority.LOW))
            return
        now = _now()
        rank = now + (0.0 if priority is Priority.HIGH else AGEING)
        before = self._ready.get(key)
        if before is not None and before[0] <= rank:
            return
        self._ready[key] = (rank, now if before is None else before[1])
        self._sequence += 1
        heapq.heappush(self._heap, (rank, self._sequence, key))
        self._sweep()
        if self._metrics is not None and before is None:
            self._metrics.added(self.name)
            self._metrics.depth(self.name, len(self._ready))
        self._wake()

    def add_after(self, key: K, delay: float, *, priority: Priority = Priority.HIGH) -> None:
        """Queue `key` in `delay` seconds, or sooner if it is due sooner already."""
        if self._closed:
            return
        if delay <= 0:
            self.add(key, priority=priority)
            return
        due = _now() + delay
        before = self._due.get(key)
        if before is not None:
            if before[0] <= due:
                return
            before[1].cancel()
        handle = asyncio.get_running_loop().call_at(due, self._ripe, key, priority)
        self._due[key] = (due, handle)

    def add_rate_limited(self, key: K) -> None:
        """Queue `key` after its own exponential backoff, with jitter."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if self._metrics is not None:
            self._metrics.retried(self.name)
        span = min(self._base * 2.0 ** min(failures, 20), self._max_delay)
        self.add_after(key, span * (0.5 + self._rng.random() / 2))

    def forget(self, key: K) -> None:
        """Its next failure backs off from the beginning."""
        self._failures.pop(key, None)

    def at_work(self) -> list[float]:
        """Seconds that each key under way has been worked on; the longest tells of a worker that hangs."""
        now = _now()
        return [now - begun for begun in self._working.values()]

    async def get(self) -> K:
        """The next key; the caller must call `done`. Raises ShutDown."""
        while True:
            if self._closed:
                raise ShutDown
            key = self._pop()
            if key is not None:
                return key
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                else:
                    self._wake()  # it had been woken for a key: pass that on
                raise

    def done(self, key: K) -> None:
        """The worker of `key` has finished, in whatever way."""
        begun = self._working.pop(key)
        if self._metrics is not None:
            self._metrics.worked(self.name, _now() - begun)
        again = self._again.pop(key, None)
        if again is not None:
            self.add(key, priority=again)

    def shut_down(self) -> None:
        self._closed = True
        for _, handle in self._due.values():
            handle.cancel()
        self._due.clear()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _ripe(self, key: K, priority: Priority) -> None:
        self._due.pop(key, None)
        self.add(key, priority=priority)

    def _pop(self) -> K | None:
        while self._heap:
            rank, _, key = heapq.heappop(self._heap)
            entry = self._ready.get(key)
            if entry is None or entry[0] != rank:
                continue  # lifted since, or taken
            del self._ready[key]
            now = _now()
            self._working[key] = now
            if self._metrics is not None:
                self._metrics.waited(self.name, now - entry[1])
                self._metrics.depth(self.name, len(self._ready))
            return key
        return None

    def _sweep(self) -> None:
        """A key that was lifted leaves its old entry behind, which would stay for as long as there is work."""
        if len(self._heap) > 2 * len(self._ready) + HEAP_SLACK:
            self._heap = [entry for entry in self._heap if self._ready.get(entry[2], (None,))[0] == entry[0]]
            heapq.heapify(self._heap)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return


def _now() -> float:
    return asyncio.get_running_loop().time()
