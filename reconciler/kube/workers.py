"""Workers of a queue: done, again after t, an error backs off, a terminal error does not.

The contract of the field (controller-runtime).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

from reconciler.kube.errors import ApiError, TransportError
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


Outcomes = Callable[[str, str], None]
"""`(queue, outcome)`: success, requeue_after, error or terminal; counted as the field's reconcile totals."""


async def run_workers(
    queue: WorkQueue[K],
    reconcile: Callable[[K], Awaitable[Result]],
    concurrency: int,
    *,
    outcomes: Outcomes | None = None,
) -> None:
    """Work until cancelled (or the queue is shut down)."""
    count = outcomes or _uncounted
    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(_work(queue, reconcile, count))


def _uncounted(queue: str, outcome: str) -> None:
    """Nobody counts."""


async def _work(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Result]], count: Outcomes) -> None:
    while True:
        try:
            key = await queue.get()
        except ShutDown:
            return
        try:
            count(queue.name, await _one(queue, reconcile, key))
        finally:
            queue.done(key)


async def _one(queue: WorkQueue[K], reconcile: Callable[[K], Awaitable[Result]], key: K) -> str:
    fields = {"queue": queue.name, "key": str(key)}
    try:
        result = await reconcile(key)
    except TerminalError:
        log.exception("reconcile failed for good", extra=fields)
        queue.forget(key)
        return "terminal"
    except (ApiError, TransportError) as error:  # expected in any cluster: no traceback
        log.warning("reconcile failed", extra={**fields, "error": str(error)})
        queue.add_rate_limited(key)
        return "error"
    except Exception:
        log.exception("reconcile failed", extra=fields)
        queue.add_rate_limited(key)
        return "error"
    queue.forget(key)
    if isinstance(result, After):
        queue.add_after(key, result.seconds)
        return "requeue_after"
    return "success"
