"""Workers of a queue, with the contract of the field: done, again after t, an error backs off, a terminal one does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from reconciler.kube.queue import ShutDown, WorkQueue

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Done:
    """Nothing more until something changes."""


@dataclass(frozen=True)
class After:
    """Look again in `seconds`."""

    seconds: float


Result = Done | After


class TerminalError(Exception):
    """Trying again will not help until something changes; counted and logged, not retried."""


async def run_workers(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Result]], concurrency: int) -> None:
    """Work until cancelled (or the queue is shut down)."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(_work(queue, reconcile))


async def _work(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Result]]) -> None:
    while True:
        try:
            key = await queue.get()
        except ShutDown:
            return
        try:
            await _one(queue, reconcile, key)
        finally:
            queue.done(key)


async def _one(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Result]], key: K) -> None:
    try:
        result = await reconcile(key)
    except TerminalError:
        log.exception("reconcile failed for good", extra={"queue": queue.name, "key": str(key)})
        queue.forget(key)
    except Exception:
        log.exception("reconcile failed", extra={"queue": queue.name, "key": str(key)})
        queue.add_rate_limited(key)
    else:
        queue.forget(key)
        if isinstance(result, After):
            queue.add_after(key, result.seconds)
