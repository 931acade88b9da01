"""The work queue against a model, in virtual time: what is due is given once, to one worker, in time, and in order."""

from __future__ import annotations

import asyncio
import heapq
import random
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from reconciler.kube.queue import AGEING, Priority, ShutDown, WorkQueue
from reconciler.sim.clock import VirtualLoop

KEYS = st.sampled_from(("a", "b", "c"))
PRIORITIES = st.sampled_from(list(Priority))
BASE, MAX_DELAY = 0.1, 2.0
EXAMPLES = settings(max_examples=100, stateful_step_count=50)
FOUND_WITHIN = settings(EXAMPLES, phases=[Phase.generate], print_blob=False, report_multiple_bugs=False)
"""Without shrinking: that it is found is all that is asked."""


class QueueMachine(RuleBasedStateMachine):
    """Two keys may be worked on at once, each by whoever got it. Delays of the model are latest moments."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.queue: WorkQueue[str] = WorkQueue("q", rng=random.Random(1), base=BASE, max_delay=MAX_DELAY)
        self.ranks: dict[str, float] = {}
        """Of ready keys: when they were added, later for low priority."""
        self.working: set[str] = set()
        self.again: dict[str, Priority] = {}
        self.due: dict[str, tuple[float, float, Priority]] = {}
        """Earliest and latest moment."""
        self.failures: dict[str, int] = {}
        self.waiting: list[asyncio.Future[str]] = []
        self.got: list[str] = []

    def _do(self, work: Any = None, seconds: float = 0.0) -> None:
        async def main() -> None:
            if work is not None:
                work()
            await asyncio.sleep(seconds)
            for _ in range(5):
                await asyncio.sleep(0)

        self.runner.run(main())
        self._ripen()
        self._collect()

    def _now(self) -> float:
        return self.runner.get_loop().time()

    def _ripen(self) -> None:
        for key, (earliest, latest, priority) in sorted(self.due.items(), key=lambda item: item[1][1]):
            if key not in self.queue._due:
                assert self._now() >= earliest, f"{key} came {earliest - self._now()} s too soon"
                del self.due[key]
                self._added(key, priority, at=earliest)
            else:
                assert self._now() <= latest, f"{key} is {self._now() - latest} s late"

    def _added(self, key: str, priority: Priority, *, at: float) -> None:
        if key in self.working:
            self.again[key] = max(priority, self.again.get(key, Priority.LOW))
            return
        rank = at + (0.0 if priority is Priority.HIGH else AGEING)
        self.ranks[key] = min(rank, self.ranks.get(key, rank))

    def _collect(self) -> None:
        """Hand what the waiting workers got over to the model."""
        for worker in [w for w in self.waiting if w.done()]:
            self.waiting.remove(worker)
            key = worker.result()
            assert key not in self.working, f"{key} is worked on by two at once"
            assert key in self.ranks, f"{key} was given, but nobody had added it"
            del self.ranks[key]
            self.working.add(key)
            self.got.append(key)

    # --- adding ---

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        self._added(key, priority, at=self._now())
        self._do(lambda: self.queue.add(key, priority=priority))

    @rule(key=KEYS, delay=st.sampled_from((0.0, 0.5, 3.0)), priority=PRIORITIES)
    def add_after(self, key: str, delay: float, priority: Priority) -> None:
        if delay == 0.0:
            self._added(key, priority, at=self._now())
        elif key not in self.due or self.due[key][1] > self._now() + delay:
            self.due[key] = (self._now() + delay, self._now() + delay, priority)
        self._do(lambda: self.queue.add_after(key, delay, priority=priority))

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        """Backs off: between half and all of a span that doubles, up to the limit."""
        span = min(BASE * 2.0 ** self.failures.get(key, 0), MAX_DELAY)
        self.failures[key] = self.failures.get(key, 0) + 1
        before = self.queue._due.get(key)
        self._do(lambda: self.queue.add_rate_limited(key))
        after = self.queue._due[key]
        if before is None or after is not before:
            begun = self._now()
            assert span / 2 <= after[0] - begun <= span
            self.due[key] = (after[0], after[0], Priority.HIGH)
        else:
            assert before[0] <= self._now() + span

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.failures.pop(key, None)
        self._do(lambda: self.queue.forget(key))

    # --- workers ---

    @precondition(lambda self: len(self.waiting) < 2)
    @rule()
    def ask(self) -> None:
        """A worker asks; the one that it gets is the first by rank."""
        best = min(self.ranks.values(), default=None)
        ranks = dict(self.ranks)
        count = len(self.got)

        def begin() -> None:
            self.waiting.append(asyncio.ensure_future(self.queue.get()))

        self._do(begin)
        if best is not None and len(self.waiting) == 0:
            assert [ranks[key] for key in self.got[count:]] == [best]

    @precondition(lambda self: bool(self.waiting))
    @rule()
    def a_worker_is_cancelled(self) -> None:
        worker = self.waiting.pop()
        self._do(worker.cancel)
        assert worker.cancelled()

    @precondition(lambda self: bool(self.working))
    @rule(data=st.data())
    def done(self, data: Any) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.discard(key)
        if key in self.again:
            self._added(key, self.again.pop(key), at=self._now())
        self._do(lambda: self.queue.done(key))

    @rule(seconds=st.sampled_from((0.05, 1.0, 5.0)))
    def time_passes(self, seconds: float) -> None:
        self._do(seconds=seconds)

    @invariant()
    def nothing_is_lost_and_nobody_waits_beside_work(self) -> None:
        assert len(self.queue) == len(self.ranks)
        assert len(self.queue._working) == len(self.working)
        assert not (self.waiting and self.ranks), f"a worker waits while {sorted(self.ranks)} are ready"

    @invariant()
    def what_it_keeps_is_bounded_by_the_keys(self) -> None:
        assert len(self.queue._due) <= 3

    def teardown(self) -> None:
        """All is worked off; then nothing is given any more."""
        try:
            self.runner.run(self._finish())
        finally:
            self.runner.close()

    async def _finish(self) -> None:
        for key in sorted(self.working):
            self.queue.done(key)
        for worker in self.waiting:
            worker.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)
        owed, given = {*self.ranks, *self.again, *self.due}, set[str]()
        deadline = asyncio.get_running_loop().time() + 10.0
        while owed - given:
            async with asyncio.timeout_at(deadline):
                key = await self.queue.get()
            self.queue.done(key)
            given.add(key)
        assert given >= owed
        self.queue.shut_down()
        with pytest.raises(ShutDown):
            await self.queue.get()
        self.queue.add("a")
        self.queue.add_after("a", 1.0)
        assert not self.queue._due


def test_the_queue_is_its_model() -> None:
    run_state_machine_as_test(QueueMachine, settings=EXAMPLES)


# --- the machine can fail: each defect is found ---


def _given_while_it_is_worked_on(self: Any, key: str, *, priority: Priority = Priority.HIGH) -> None:
    if key not in self._ready:
        rank = asyncio.get_running_loop().time()
        self._ready[key] = (rank, rank)
        self._sequence += 1
        heapq.heappush(self._heap, (rank, self._sequence, key))
        self._wake()


def _forgotten_when_added_at_work(self: Any, key: str) -> None:
    self._working.pop(key)
    self._again.pop(key, None)


def _nobody_is_woken(self: Any) -> None:
    """Workers that wait sleep on."""


def _the_latest_delay_wins(self: Any, key: str, delay: float, *, priority: Priority = Priority.HIGH) -> None:
    loop = asyncio.get_running_loop()
    if key in self._due:
        self._due[key][1].cancel()
    self._due[key] = (loop.time() + delay, loop.call_later(delay, self._ripe, key, priority))


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("add", _given_while_it_is_worked_on),
        ("done", _forgotten_when_added_at_work),
        ("_wake", _nobody_is_woken),
        ("add_after", _the_latest_delay_wins),
    ],
)
def test_a_defect_is_found(monkeypatch: pytest.MonkeyPatch, name: str, defect: Any) -> None:
    monkeypatch.setattr(WorkQueue, name, defect)
    with pytest.raises((AssertionError, TimeoutError)):
        run_state_machine_as_test(QueueMachine, settings=FOUND_WITHIN)
