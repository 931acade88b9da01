"""The work queue: one entry a key, one worker a key, delays, backoff, priority with ageing."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reconciler.kube.queue import Priority, ShutDown, WorkQueue
from reconciler.sim.clock import run


def with_queue(body: Callable[[WorkQueue[str]], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await body(WorkQueue("test", rng=random.Random(1), base=0.1, max_delay=10.0))

    return run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


async def take(queue: WorkQueue[str], count: int) -> list[str]:
    taken = []
    for _ in range(count):
        key = await queue.get()
        queue.done(key)
        taken.append(key)
    return taken


def test_a_key_added_many_times_is_given_once() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        for key in ("a", "b", "a", "a"):
            queue.add(key)
        assert await take(queue, 2) == ["a", "b"]
        assert len(queue) == 0

    with_queue(body)


def test_a_key_added_while_it_is_worked_on_comes_again_when_done_and_not_before() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await queue.get()
        queue.done(key)
        assert await queue.get() == "a"

    with_queue(body)


def test_the_earliest_of_several_delays_wins() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add_after("a", 10)
        queue.add_after("a", 3)
        queue.add_after("a", 7)
        assert await take(queue, 1) == ["a"]
        assert now() == 3.0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await queue.get()

    with_queue(body)


def test_failures_back_off_per_key_until_forgotten() -> None:
    async def body(queue: WorkQueue[str]) -> list[float]:
        waits = []
        for _ in range(10):
            begun = now()
            queue.add_rate_limited("a")
            await take(queue, 1)
            waits.append(now() - begun)
        queue.forget("a")
        begun = now()
        queue.add_rate_limited("a")
        await take(queue, 1)
        return [*waits, now() - begun]

    *waits, first_again = with_queue(body)
    for wait, limit in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10], strict=True):
        assert limit / 2 <= wait <= limit + 1e-9
    assert first_again <= 0.1


def test_real_changes_go_before_the_first_list() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add("listed", priority=Priority.LOW)
        queue.add("changed")
        assert await take(queue, 2) == ["changed", "listed"]

    with_queue(body)


def test_low_priority_does_not_starve() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add("listed", priority=Priority.LOW)
        await asyncio.sleep(31)
        queue.add("changed")
        assert await take(queue, 2) == ["listed", "changed"]

    with_queue(body)


def test_a_change_lifts_a_key_of_low_priority() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add("a", priority=Priority.LOW)
        queue.add("b", priority=Priority.LOW)
        queue.add("b")
        assert await take(queue, 2) == ["b", "a"]
        assert len(queue) == 0

    with_queue(body)


def test_a_cancelled_worker_passes_its_key_on() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        first, second = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await second == "a"

    with_queue(body)


def test_after_shut_down_waiting_workers_end_and_nothing_is_taken() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add_after("later", 1)
        waiting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.shut_down()
        queue.add("a")
        with pytest.raises(ShutDown):
            await waiting
        assert len(queue) == 0

    with_queue(body)


def test_a_worker_that_hangs_can_be_seen() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await queue.get()
        await asyncio.sleep(42)
        assert queue.at_work() == [42.0]

    with_queue(body)


def test_keys_that_are_lifted_again_and_again_beside_other_work_leave_nothing_behind() -> None:
    async def body(queue: WorkQueue[str]) -> None:
        for _ in range(1000):
            queue.add("low", priority=Priority.LOW)
            queue.add("a", priority=Priority.LOW)
            queue.add("a")
            assert await take(queue, 1) == ["a"]
        assert len(queue) == 1
        assert len(queue._heap) <= 20

    with_queue(body)
