"""Plays the plans of many seeds in several processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import connection, get_context, parent_process

from tests.soak import plans
from tests.soak.outcome import Outcome
from tests.soak.playing import play
from tests.soak.shrinking import shrink

AHEAD = 2
"""Plans that are handed to the processes beyond those that they play."""


def processes(jobs: int) -> ProcessPoolExecutor:
    """Fresh ones, that end with this one also when it is killed."""
    return ProcessPoolExecutor(jobs, mp_context=get_context("forkserver"), initializer=_end_with_parent)


def outcomes(seeds: range, faults: tuple[str, ...], jobs: int) -> Iterator[Outcome]:
    """As they come."""
    waiting = iter(seeds)
    with processes(jobs) as pool:
        under_way: set[Future[Outcome]] = set()
        while True:
            while len(under_way) < jobs + AHEAD and (seed := next(waiting, None)) is not None:
                under_way.add(pool.submit(_played, seed, faults))
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def shortened(failed: list[Outcome], jobs: int) -> Iterator[tuple[Outcome, Outcome]]:
    """Each with the play of the shortest plan found that fails in the same way."""
    with processes(jobs) as pool:
        yield from zip(failed, pool.map(_shortest, failed), strict=True)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _shortest(failed: Outcome) -> Outcome:
    return play(shrink(failed.plan, lambda plan: play(plan).failure == failed.failure))


def _played(seed: int, faults: tuple[str, ...]) -> Outcome:
    return play(plans.draw(seed, faults=faults))
