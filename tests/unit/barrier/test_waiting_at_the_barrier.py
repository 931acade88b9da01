"""Calls wait while the barrier is closed, go on when it opens, and end at their deadline. In virtual time."""

from __future__ import annotations

import asyncio
import random

import pytest

from reconciler.barrier.barrier import BarrierFailed, BarrierTimeout, RetryBarrier, State
from reconciler.cri.api import Code, CriError
from reconciler.sim import clock

OUTAGE = CriError(Code.UNAVAILABLE, "error reading from server: EOF", connection=True)
TROUBLE = CriError(Code.UNKNOWN, "failed to destroy network", connection=False)


class Counted:
    """Metrics that remember."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def closed(self, reason: str) -> None:
        self.told.append(("closed", reason))

    def opened(self, seconds: float) -> None:
        self.told.append(("opened", seconds))

    def waited(self, seconds: float) -> None:
        self.told.append(("waited", seconds))

    def retried(self, reason: str) -> None:
        self.told.append(("retried", reason))


def make(counted: Counted | None = None) -> RetryBarrier:
    return RetryBarrier(rng=random.Random(1), metrics=counted)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_it_begins_closed_and_a_call_waits_for_the_opening() -> None:
    async def main() -> None:
        barrier = make()
        assert barrier.state is State.CLOSED
        asyncio.get_running_loop().call_later(8, barrier.open)

        async def ask() -> float:
            return now()

        assert await barrier.call(ask, deadline=60) == 8

    clock.run(main())


def test_an_outage_closes_it_and_the_call_is_tried_again_after_the_opening() -> None:
    async def main() -> None:
        barrier, tries = make(), 0
        barrier.open()

        async def ask() -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                asyncio.get_running_loop().call_later(5, barrier.open)
                raise OUTAGE
            return "done"

        assert await barrier.call(ask, deadline=60) == "done"
        assert (tries, barrier.state) == (2, State.OPEN)
        assert now() >= 5

    clock.run(main())


def test_an_outage_tells_how_long_it_has_lasted_by_now() -> None:
    async def main() -> None:
        barrier = make()
        barrier.open()
        assert barrier.down() == 0
        barrier.close("Outage")
        await asyncio.sleep(3)
        barrier.fail("CRIMissing")
        await asyncio.sleep(4)
        assert barrier.down() == 7
        barrier.open()
        assert barrier.down() == 0

    clock.run(main())


def test_one_pods_trouble_is_raised_and_leaves_it_open() -> None:
    async def main() -> None:
        barrier = make()
        barrier.open()

        async def ask() -> None:
            raise TROUBLE

        with pytest.raises(CriError, match="destroy network"):
            await barrier.call(ask, deadline=60)
        assert barrier.state is State.OPEN

    clock.run(main())


def test_an_operation_that_is_not_idempotent_is_not_sent_twice() -> None:
    async def main() -> None:
        barrier, tries = make(), 0
        barrier.open()

        async def ask() -> None:
            nonlocal tries
            tries += 1
            raise OUTAGE

        with pytest.raises(CriError, match="EOF"):
            await barrier.call(ask, deadline=60, idempotent=False)
        assert (tries, barrier.state) == (1, State.CLOSED)

    clock.run(main())


def test_the_deadline_ends_the_wait_and_names_the_cause() -> None:
    async def main() -> None:
        barrier = make()
        barrier.open()

        async def ask() -> None:
            raise OUTAGE

        with pytest.raises(BarrierTimeout, match="EOF"):
            await barrier.call(ask, deadline=10)
        assert now() == 10

    clock.run(main())


def test_a_failed_barrier_tells_those_who_wait() -> None:
    async def main() -> None:
        barrier = make()
        asyncio.get_running_loop().call_later(3, barrier.fail, "CRIMissing")

        async def ask() -> None:
            raise AssertionError("must not run")

        with pytest.raises(BarrierFailed, match="CRIMissing"):
            await barrier.call(ask, deadline=60)
        assert now() == 3

    clock.run(main())


def test_waiting_calls_are_let_through_a_few_at_a_time() -> None:
    async def main() -> None:
        barrier, inside, most = make(), 0, 0

        async def ask() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.5)
            inside -= 1

        asyncio.get_running_loop().call_later(1, barrier.open)
        await asyncio.gather(*(barrier.call(ask, deadline=60) for _ in range(20)))
        assert most == 4

    clock.run(main())


def test_a_long_operation_does_not_hold_up_the_next_callers() -> None:
    async def main() -> None:
        barrier, begun = make(), []

        async def kill() -> None:
            begun.append(now())
            await asyncio.sleep(60)

        asyncio.get_running_loop().call_later(1, barrier.open)
        await asyncio.gather(*(barrier.call(kill, deadline=300) for _ in range(8)))
        assert begun == [1, 1, 1, 1, 2, 2, 2, 2]

    clock.run(main())


def test_the_late_failure_of_a_call_to_the_old_process_does_not_close_it_again() -> None:
    async def main() -> None:
        barrier, states = make(), []
        barrier.open()
        barrier.listen(lambda state: states.append(state))
        tries = 0

        async def ask() -> str:
            nonlocal tries
            tries += 1
            if tries == 1:
                await asyncio.sleep(2)  # meanwhile the process was replaced
                raise OUTAGE
            return "done"

        loop = asyncio.get_running_loop()
        loop.call_later(0.5, barrier.close, "ProcessChanged")
        loop.call_later(1, barrier.open)
        assert await barrier.call(ask, deadline=60) == "done"
        assert states == [State.CLOSED, State.OPEN]

    clock.run(main())


def test_outages_waits_and_retries_are_counted() -> None:
    async def main() -> None:
        counted = Counted()
        barrier = make(counted)
        barrier.open()
        barrier.close("SocketGone")
        barrier.close("NotServing")
        await asyncio.sleep(4)
        barrier.open()
        assert counted.told == [("closed", "SocketGone"), ("opened", 4.0)]

    clock.run(main())
