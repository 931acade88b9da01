"""The contract of reconcile functions: done, again after t, an error backs off, a terminal one does not."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from reconciler.kube.errors import TransportError
from reconciler.kube.queue import WorkQueue
from reconciler.kube.workers import After, Done, Result, TerminalError, run_workers
from reconciler.sim.clock import run

Reconcile = Callable[[str], Awaitable[Result]]


def work(reconcile: Reconcile, keys: list[str], *, seconds: float, concurrency: int = 2) -> list[tuple[str, str]]:
    """Run workers for virtual seconds; the outcomes counted."""

    async def main() -> list[tuple[str, str]]:
        queue: WorkQueue[str] = WorkQueue("q", rng=random.Random(1))
        outcomes: list[tuple[str, str]] = []
        for key in keys:
            queue.add(key)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await run_workers(
                    queue, reconcile, concurrency, outcomes=lambda name, outcome: outcomes.append((name, outcome))
                )
        return outcomes

    return run(main())


def test_done_is_not_called_again() -> None:
    called: list[str] = []

    async def reconcile(key: str) -> Result:
        called.append(key)
        return Done()

    assert work(reconcile, ["a"], seconds=100) == [("q", "success")]
    assert called == ["a"]


def test_after_is_called_again_then() -> None:
    times: list[float] = []

    async def reconcile(key: str) -> Result:
        times.append(asyncio.get_running_loop().time())
        return After(10)

    work(reconcile, ["a"], seconds=25)
    assert times == [0.0, 10.0, 20.0]


@pytest.mark.parametrize("error", [TransportError("no answer"), RuntimeError("a mistake of ours")])
def test_errors_back_off_and_other_keys_go_on(error: Exception) -> None:
    called: list[str] = []

    async def reconcile(key: str) -> Result:
        called.append(key)
        if key == "bad":
            raise error
        return Done()

    outcomes = work(reconcile, ["bad", "good"], seconds=5)
    assert called.count("good") == 1
    assert 6 <= called.count("bad") <= 9
    assert outcomes.count(("q", "error")) == called.count("bad")


def test_a_terminal_error_is_counted_and_not_tried_again() -> None:
    async def reconcile(key: str) -> Result:
        raise TerminalError("until somebody changes it")

    assert work(reconcile, ["a"], seconds=100) == [("q", "terminal")]


def test_no_more_keys_at_once_than_workers_and_never_the_same_key_twice() -> None:
    running: list[str] = []
    most = 0

    async def reconcile(key: str) -> Result:
        nonlocal most
        assert key not in running
        running.append(key)
        most = max(most, len(running))
        await asyncio.sleep(1)
        running.remove(key)
        return After(0.1)

    work(reconcile, ["a", "b", "c", "d"], seconds=20, concurrency=3)
    assert most == 3
