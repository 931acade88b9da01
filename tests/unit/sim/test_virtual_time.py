"""Virtual time: hours pass at once, in order, and the same seed gives the same run."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from reconciler.sim import clock


def test_an_hour_of_sleep_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    begun = time.monotonic()
    assert clock.run(main()) == 3600.0
    assert time.monotonic() - begun < 5


def test_the_wall_clock_follows_and_jumps_when_told() -> None:
    async def main() -> tuple[str, str]:
        wall = clock.VirtualClock()
        await asyncio.sleep(60)
        before = wall.now().isoformat()
        wall.jump -= timedelta(hours=1)
        return before, wall.now().isoformat()

    assert clock.run(main()) == ("2026-01-01T00:01:00+00:00", "2025-12-31T23:01:00+00:00")


def test_threads_run_inline() -> None:
    async def main() -> tuple[str, float]:
        answer = await asyncio.to_thread(lambda: "done")
        return answer, asyncio.get_running_loop().time()

    assert clock.run(main()) == ("done", 0.0)


def test_an_error_of_a_thread_reaches_who_awaits_it() -> None:
    async def main() -> None:
        await asyncio.to_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        clock.run(main())


def test_a_loop_that_nothing_can_wake_says_so() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(clock.Stalled):
        clock.run(main())


def test_tasks_that_wake_each_other_for_ever_are_found() -> None:
    async def main() -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0)

    with pytest.raises(clock.Livelock, match=r"50000 turns of the loop at 0.000 s"):
        clock.run(main())


def test_what_asyncio_keeps_in_sets_is_cancelled_in_the_order_in_which_it_began() -> None:
    """By address, which is how tasks hash elsewhere, the order would be another in each process."""
    ended: list[int] = []

    async def forever(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(200):
                    tasks.create_task(forever(number))
                await asyncio.sleep(1)
                raise KeyError
        except* KeyError:
            pass

    clock.run(main())
    assert ended == list(range(200))
