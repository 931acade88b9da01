"""When the guard looks, what it leaves alone, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from reconciler.agent.guard import Guard
from reconciler.api.meta import Pod
from reconciler.hostconfig import Code, FileChange, Outcome, Verdict
from reconciler.kube.events import Recorder
from reconciler.kube.store import Store, key_of
from reconciler.sim import clock
from tests.unit.agent.bench import UNIT, Bench, pod

PUT_BACK = Outcome(Verdict.CHANGED, None, "line 9: broken", (FileChange("/etc/containerd/config.toml", "edited", ""),))


class Told(Recorder):
    """Keeps what was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, regarding: object, kind: str, reason: str, note: str, action: str) -> None:
        self.events.append((reason, note))


def play(
    bench: Bench, pods: list[Pod], main: Callable[[Guard, Told, Store[Pod]], Awaitable[None]], changing: bool = False
) -> None:
    store: Store[Pod] = Store()
    for one in pods:
        store.put(one)

    async def body() -> None:
        told = Told()
        guard = Guard(bench.deps, bench.barrier, bench.probe, store, told, changing=lambda: changing)
        bench.probe.unit = UNIT
        task = asyncio.create_task(guard.run())
        await main(guard, told, store)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


def test_without_a_phase_pod_it_does_nothing_but_forget_what_a_predecessor_kept(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        await asyncio.sleep(3600)
        assert bench.host.rescue.calls == ["forget"]

    play(bench, [pod("db")], main)


def test_in_the_window_it_remembers_once_and_after_it_forgets(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        await asyncio.sleep(60)
        assert bench.host.rescue.calls == ["remember"]
        store.remove(key_of(store.list()[0]))
        guard.nudge()
        await asyncio.sleep(9)
        assert bench.host.rescue.calls == ["remember"]
        await asyncio.sleep(3)
        assert bench.host.rescue.calls == ["remember", "forget"]

    play(bench, [pod("p", phase="install")], main)


def test_an_edit_is_judged_after_two_seconds_of_quiet(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        await asyncio.sleep(5)
        bench.host.rescue.proven, bench.host.rescue.outcome = False, PUT_BACK
        for _ in range(6):
            bench.host.rescue.files += 1
            await asyncio.sleep(0.9)
        assert "put back" not in bench.host.rescue.calls
        await asyncio.sleep(2.5)
        assert bench.host.rescue.calls.count("put back") == 1
        text = "put back /etc/containerd/config.toml; the rejected bytes are kept: line 9: broken"
        assert told.events == [("ConfigPutBack", text)]

    play(bench, [pod("p", phase="install")], main)


def test_containerd_that_failed_with_it_is_not_waited_for(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        await asyncio.sleep(5)
        bench.host.rescue.files, bench.host.rescue.outcome = 1, PUT_BACK
        bench.probe.unit = replace(UNIT, active_state="failed", result="exit-code")
        await asyncio.sleep(0.6)
        assert bench.host.rescue.calls[-1] == "put back, failed"

    play(bench, [pod("p", phase="install")], main)


def test_the_start_limit_says_nothing_about_the_files(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        bench.host.rescue.proven = False
        bench.probe.unit = replace(UNIT, active_state="failed", result="start-limit-hit")
        await asyncio.sleep(60)
        assert "put back, failed" not in bench.host.rescue.calls

    play(bench, [pod("p", phase="install")], main)


def test_during_a_change_of_ours_it_keeps_its_hands_off(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        bench.probe.unit = replace(UNIT, active_state="failed", result="exit-code")
        await asyncio.sleep(60)
        assert bench.host.rescue.calls == []

    play(bench, [pod("p", phase="install")], main, changing=True)


def test_somebody_who_writes_is_waited_for_and_a_will_is_contested_once(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        bench.host.rescue.proven = False
        bench.host.rescue.outcome = Outcome(Verdict.REFUSED, Code.BUSY, "open for writing")
        await asyncio.sleep(5)
        assert (bench.host.rescue.calls.count("put back") > 2, told.events) == (True, [])
        bench.host.rescue.outcome = Outcome(Verdict.REFUSED, Code.CONTESTED, "twice within an hour")
        await asyncio.sleep(60)
        assert told.events == [("ConfigContested", "twice within an hour")]

    play(bench, [pod("p", phase="install")], main)
