"""When the guard looks, what it leaves alone, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from msgspec import structs

from reconciler.agent.guard import Guard
from reconciler.api import names
from reconciler.api.meta import Condition, Node, NodeStatus, ObjectMeta, Pod
from reconciler.hostconfig import Code, FileChange, Outcome, Verdict
from reconciler.kube.store import Store, key_of
from reconciler.sim import clock
from reconciler.sim.clock import EPOCH
from tests.unit.agent.bench import UNIT, Bench, Told, pod

PUT_BACK = Outcome(Verdict.CHANGED, None, "line 9: broken", (FileChange("/etc/containerd/config.toml", "edited", ""),))

CONTESTED = Outcome(Verdict.REFUSED, Code.CONTESTED, "twice within an hour")


def play(
    bench: Bench, pods: list[Pod], main: Callable[[Guard, Told, Store[Pod]], Awaitable[None]], changing: bool = False
) -> None:
    store: Store[Pod] = Store()
    for one in pods:
        store.put(one)

    async def body() -> None:
        told = Told()
        guard = Guard(
            bench.deps, bench.barrier, bench.probe, store, told, changing=lambda: changing, changed=bench.wake
        )
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
        bench.host.rescue.outcome, bench.host.rescue.would_start = CONTESTED, False
        await asyncio.sleep(60)
        assert told.events == [("ConfigContested", "twice within an hour")]
        assert (guard.contested, bench.woken) == ("twice within an hour", 1)

    play(bench, [pod("p", phase="install")], main)


def test_put_backs_are_counted_for_the_youngest_pod(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        bench.host.rescue.proven = False
        await asyncio.sleep(3)
        assert bench.host.rescue.during == "b"

    older, younger = (structs.replace(pod(uid, phase="install").metadata, creation_timestamp=at) for uid, at in AGES)
    play(bench, [structs.replace(pod("b", phase="install"), metadata=one) for one in (younger, older)], main)


def test_a_contest_is_over_when_the_files_would_start_also_after_the_window(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        bench.host.rescue.proven, bench.host.rescue.would_start = False, False
        bench.host.rescue.outcome = CONTESTED
        await asyncio.sleep(5)
        store.remove(key_of(store.list()[0]))
        await asyncio.sleep(600)
        calls = [*bench.host.rescue.calls]
        assert (guard.contested, calls[-1]) == ("twice within an hour", "forget")
        bench.host.rescue.would_start = True
        await asyncio.sleep(6)
        assert (guard.contested, bench.woken, bench.host.rescue.calls) == ("", 2, calls)

    play(bench, [pod("p", phase="install")], main)


def test_a_contest_is_not_over_while_containerd_is_down(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        guard.see(contested_node())
        bench.probe.unit = replace(UNIT, active_state="failed", result="exit-code")
        await asyncio.sleep(60)
        assert guard.contested == "twice within an hour"
        bench.probe.unit = UNIT
        await asyncio.sleep(6)
        assert guard.contested == ""

    play(bench, [], main)


def test_a_new_agent_hears_of_a_contest_from_the_node_and_only_once(bench: Bench) -> None:
    async def main(guard: Guard, told: Told, store: Store[Pod]) -> None:
        guard.see(contested_node())
        assert guard.contested == "twice within an hour"
        await asyncio.sleep(1)
        assert guard.contested == ""
        guard.see(contested_node())
        assert guard.contested == ""

    play(bench, [], main)


AGES = (("a", EPOCH), ("b", EPOCH + timedelta(seconds=1)))


def contested_node() -> Node:
    told = Condition(type=names.CONTESTED_CONDITION, status="True", message="twice within an hour")
    return Node(metadata=ObjectMeta(name="node-1"), status=NodeStatus(conditions=(told,)))
