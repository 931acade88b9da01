"""Which kills are retried after an outage, when, and with what grace; and when a phase pod counts as over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from reconciler.agent.kills import Kills
from reconciler.api import names
from reconciler.api.meta import Pod
from reconciler.cri.api import CriError
from reconciler.kube.store import Store
from reconciler.sim import clock
from tests.unit.agent.bench import OUTAGE, Bench, pod


def play(bench: Bench, pods: list[Pod], main: Callable[[Kills], Awaitable[None]]) -> Kills:
    store: Store[Pod] = Store()
    for one in pods:
        store.put(one)
    made: list[Kills] = []

    async def body() -> None:
        kills = Kills(bench.deps, bench.barrier, store, bench.wake)
        made.append(kills)
        task = asyncio.create_task(kills.run())
        await asyncio.sleep(0)
        await main(kills)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())
    return made[0]


async def outage(bench: Bench, seconds: float) -> None:
    bench.barrier.close("NotServing")
    await asyncio.sleep(seconds)
    bench.barrier.open()


def test_a_phase_pod_is_stopped_at_once_with_what_is_left_of_its_grace(bench: Bench) -> None:
    bench.cri.run("p")

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 8)
        await asyncio.sleep(1)
        assert bench.cri.stopped == [("c-p", 22.0), "s-p"]
        assert kills.ended == {"p"}

    play(bench, [pod("p", phase="uninstall", deleted=0, grace=30)], main)


def test_a_foreign_pod_keeps_its_whole_grace_and_a_margin_from_the_opening(bench: Bench) -> None:
    bench.cri.run("db")

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 8)
        await asyncio.sleep(69)
        assert bench.cri.stopped == []
        await asyncio.sleep(2)
        assert bench.cri.stopped == [("c-db", 0.0), "s-db"]

    play(bench, [pod("db", deleted=0, grace=60)], main)


def test_a_pod_that_opts_in_is_stopped_at_once(bench: Bench) -> None:
    bench.cri.run("web")

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 8)
        await asyncio.sleep(1)
        assert bench.cri.stopped == [("c-web", 0.0), "s-web"]

    play(bench, [pod("web", deleted=0, grace=5, annotations={names.KILL_RETRY_ANNOTATION: "true"})], main)


@pytest.mark.parametrize(
    "spared",
    [
        pod("own", deleted=0),
        pod("static", deleted=0, annotations={"kubernetes.io/config.source": "file"}),
        pod("mirror", deleted=0, annotations={"kubernetes.io/config.mirror": "x"}),
        pod("stays"),
    ],
    ids=lambda one: one.metadata.uid,
)
def test_some_pods_are_never_stopped(bench: Bench, spared: Pod) -> None:
    bench.cri.run(spared.metadata.uid)

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 8)
        await asyncio.sleep(600)
        assert bench.cri.stopped == []

    play(bench, [spared], main)


def test_without_an_outage_the_kill_is_kubelets(bench: Bench) -> None:
    bench.cri.run("p")

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 1)
        await asyncio.sleep(600)
        assert bench.cri.stopped == []

    play(bench, [pod("p", phase="uninstall", deleted=5)], main)


def test_a_phase_pod_whose_hook_loops_loses_its_grace(bench: Bench) -> None:
    bench.cri.run("p")
    tries = 0

    async def cut() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:  # the hook has run again while the container was being stopped
            await asyncio.sleep(7)
            bench.barrier.close("ProcessChanged")
            asyncio.get_running_loop().call_later(1, bench.barrier.open)
            raise CriError(OUTAGE.code, OUTAGE.message, connection=True)

    bench.cri.after_stop = cut

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 1)
        await asyncio.sleep(12)
        assert bench.cri.stopped == [("c-p", 59.0), ("c-p", 2.0), "s-p"]

    play(bench, [pod("p", phase="install", deleted=0, grace=60)], main)


def test_a_long_kill_does_not_hold_up_the_others(bench: Bench) -> None:
    bench.cri.run("slow")
    bench.cri.run("p")
    bench.cri.after_stop = lambda: asyncio.sleep(30)

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await outage(bench, 1)
        await asyncio.sleep(1)
        assert [stop[0] for stop in bench.cri.stopped] == ["c-slow", "c-p"]

    slow = pod("slow", deleted=0, grace=600, annotations={names.KILL_RETRY_ANNOTATION: "true"})
    play(bench, [slow, pod("p", phase="uninstall", deleted=0)], main)


def test_the_sandbox_of_a_finished_phase_pod_is_stopped_and_the_pod_is_over(bench: Bench) -> None:
    bench.cri.run("p", alive=False)

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await asyncio.sleep(1)
        assert bench.cri.stopped == ["s-p"]
        assert kills.ended == {"p"}

    play(bench, [pod("p", phase="uninstall", exit_code=0)], main)


def test_a_pod_is_to_come_until_it_has_ended_or_is_over_or_gone(bench: Bench) -> None:
    pending, ended = pod("pending", phase="install"), pod("ended", phase="install", exit_code=0)
    store: Store[Pod] = Store()
    for one in (pending, ended):
        store.put(one)
    kills = Kills(bench.deps, bench.barrier, store, bench.wake)
    assert [kills.to_come(uid) for uid in ("pending", "ended", "gone")] == [True, False, False]
    kills.ended.add("pending")
    assert not kills.to_come("pending")


def test_a_good_install_is_left_to_be_sealed_by_configure(bench: Bench) -> None:
    bench.cri.run("p", alive=False)

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await asyncio.sleep(60)
        assert (bench.cri.stopped, kills.ended) == ([], set())

    play(bench, [pod("p", phase="install", exit_code=0)], main)


def test_a_failed_install_is_told(bench: Bench) -> None:
    bench.cri.run("p", alive=False)

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await asyncio.sleep(1)
        assert kills.ended == {"p"}

    play(bench, [pod("p", phase="install", exit_code=3)], main)


def test_a_pod_without_any_container_is_over_only_after_it_stayed_so(bench: Bench) -> None:
    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await asyncio.sleep(2.5)
        assert kills.ended == set()
        await asyncio.sleep(1)
        assert kills.ended == {"p"}

    play(bench, [pod("p", phase="install", deleted=0)], main)


def test_nothing_is_said_of_a_pod_while_cri_cannot_be_asked(bench: Bench) -> None:
    async def main(kills: Kills) -> None:
        bench.barrier.open()
        bench.cri.error = OUTAGE
        await asyncio.sleep(60)
        assert kills.ended == set()

    def later(_: Any) -> None:
        return None

    bench.barrier.listen(later)
    play(bench, [pod("p", phase="uninstall", exit_code=0)], main)


def test_a_finished_pod_that_is_deleted_without_grace_is_no_news(bench: Bench) -> None:
    bench.cri.run("p", alive=False)

    async def main(kills: Kills) -> None:
        bench.barrier.open()
        await asyncio.sleep(5)
        assert kills.ended == set()
        assert bench.woken == 0

    play(bench, [pod("p", phase="install", deleted=0, grace=0, exit_code=0)], main)
