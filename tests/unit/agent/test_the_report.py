"""Condition and report go in one patch, only when the truth changes, and never for a restart of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from reconciler.agent.reporting import Reporter
from reconciler.agent.work import Worker
from reconciler.api import names
from reconciler.api.meta import condition
from reconciler.api.node import NodeState, Report, Stage, WorkReport, WorkResult, decode_report
from reconciler.cri.api import Code, CriError
from reconciler.sim import clock
from tests.unit.agent.bench import OUTAGE, Bench


def play(bench: Bench, main: Callable[[Reporter, Worker, set[str]], Awaitable[None]]) -> None:
    async def body() -> None:
        ended: set[str] = set()
        worker = bench.worker()
        reporter = Reporter(
            bench.deps, bench.barrier, bench.probe, worker, ended=lambda: ended, contested=lambda: bench.contested
        )
        reporter.see(bench.api.node)
        task = asyncio.create_task(reporter.run())
        await main(reporter, worker, ended)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


async def look(bench: Bench, reporter: Reporter) -> None:
    await bench.probe.look()
    reporter.wake()
    await asyncio.sleep(0.1)


def told(bench: Bench) -> Report:
    return decode_report(bench.api.node.metadata.annotations[names.REPORT_ANNOTATION])


def serving(bench: Bench) -> tuple[str, str]:
    found = condition(bench.api.node.status.conditions, names.SERVING_CONDITION)
    assert found is not None
    return found.status, found.reason


def test_nothing_is_said_before_the_first_look(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await asyncio.sleep(10)
        assert (bench.api.patches, reporter.written) == ([], False)

    play(bench, main)


def test_condition_and_report_are_one_patch_and_written_once(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        for _ in range(5):
            await look(bench, reporter)
        assert len(bench.api.patches) == 1
        assert serving(bench) == ("True", "Serving")
        assert told(bench) == Report(boot="boot-1", containerd="1.6.20", handlers=("runc",))
        assert reporter.written

    play(bench, main)


def test_a_daemon_that_comes_up_with_the_agent_costs_one_patch(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        bench.cri.error = OUTAGE
        await look(bench, reporter)
        await asyncio.sleep(1)
        bench.cri.error = None
        await look(bench, reporter)
        assert len(bench.api.patches) == 1
        assert serving(bench) == ("True", "Serving")

    play(bench, main)


def test_an_outage_is_told_and_its_end_too(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await look(bench, reporter)
        bench.cri.error = OUTAGE
        await look(bench, reporter)
        assert serving(bench) == ("False", "NotServing")
        assert told(bench).handlers == ("runc",)
        bench.cri.error = None
        await look(bench, reporter)
        assert serving(bench) == ("True", "Serving")
        assert len(bench.api.patches) == 3

    play(bench, main)


def test_a_restart_of_our_own_does_not_flip_the_condition(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await look(bench, reporter)
        bench.host.busy = True
        bench.cri.error = OUTAGE
        await look(bench, reporter)
        bench.cri.error, bench.host.busy = None, False
        await look(bench, reporter)
        assert len(bench.api.patches) == 1

    play(bench, main)


def test_the_report_waits_for_the_answer_of_the_work_in_hand(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await look(bench, reporter)
        worker.busy_since = asyncio.get_running_loop().time()
        bench.host.held = {"kata": "u"}
        bench.cri.handlers = ("kata", "runc")
        await look(bench, reporter)
        assert len(bench.api.patches) == 1
        asked = NodeState(uid="u", stage=Stage.CONFIGURE, target="r1", since=clock.EPOCH)
        node = bench.api.ask("kata", asked)
        worker.see(node)
        reporter.see(node)
        worker.answers["kata"] = WorkReport(
            uid="u", stage=Stage.CONFIGURE, revision="r1", attempt=1, result=WorkResult.DONE
        )
        worker.busy_since = None
        await look(bench, reporter)
        assert len(bench.api.patches) == 2
        assert told(bench).handlers == ("kata", "runc")
        assert told(bench).journal == {"kata": "u"}
        assert told(bench).work["kata"].result is WorkResult.DONE

    play(bench, main)


def test_work_that_is_let_go_of_is_news(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        bench.api.ask("kata", NodeState(uid="u", stage=Stage.CONFIGURE, target="r1", since=bench.deps.clock.now()))
        reporter.see(bench.api.node)
        worker.see(bench.api.node)
        waits = WorkReport(uid="u", stage=Stage.CONFIGURE, revision="r1", attempt=1, result=WorkResult.WAITING)
        worker.answers["kata"] = waits
        await look(bench, reporter)
        assert told(bench).work == {"kata": waits}
        worker.answers.clear()
        await look(bench, reporter)
        assert told(bench).work == {}

    play(bench, main)


def test_pods_that_are_over_are_added_and_drop_out_with_the_next_word(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await look(bench, reporter)
        ended.add("p2")
        ended.add("p1")
        await look(bench, reporter)
        assert told(bench).ended == ("p1", "p2")
        ended.clear()
        await look(bench, reporter)
        assert len(bench.api.patches) == 2
        bench.cri.handlers = ("kata", "runc")
        await look(bench, reporter)
        assert told(bench).ended == ()

    play(bench, main)


def test_a_node_from_before_our_own_write_is_not_answered_again(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        before = bench.api.node
        await look(bench, reporter)
        reporter.see(before)
        await look(bench, reporter)
        assert len(bench.api.patches) == 1

    play(bench, main)


def test_a_person_who_stopped_containerd_is_told_apart(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        from dataclasses import replace

        await look(bench, reporter)
        bench.cri.error = OUTAGE
        bench.systemd.state = replace(bench.systemd.state, active_state="inactive")
        await look(bench, reporter)
        assert serving(bench) == ("False", "StoppedByAdmin")

    play(bench, main)


def test_a_daemon_that_flaps_does_not_become_a_storm_of_writes(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await look(bench, reporter)
        for second in range(600):
            bench.cri.error = None if second % 2 else OUTAGE
            await look(bench, reporter)
        assert len(bench.api.patches) == 20 + 20 + 20 + 1  # full windows from 0, 20 and 40 s, and one that begins
        bench.cri.error = None
        await look(bench, reporter)
        await asyncio.sleep(20)
        assert serving(bench) == ("True", "Serving")

    play(bench, main)


def contested(bench: Bench) -> tuple[str, str, str] | None:
    found = condition(bench.api.node.status.conditions, names.CONTESTED_CONDITION)
    return None if found is None else (found.status, found.reason, found.message)


def test_a_contest_is_a_condition_and_a_node_without_one_has_none(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        await look(bench, reporter)
        assert contested(bench) is None
        bench.contested = "put back twice"
        await look(bench, reporter)
        await look(bench, reporter)
        assert contested(bench) == ("True", "PutBackInVain", "put back twice")
        bench.contested = ""
        await look(bench, reporter)
        await look(bench, reporter)
        assert contested(bench) == ("False", "WouldStart", "the files on disk would start")
        assert [len(patch["status"]["conditions"]) for patch in bench.api.patches] == [1, 1, 1]

    play(bench, main)


def test_why_cri_is_missing_is_said_in_containerds_own_words(bench: Bench) -> None:
    async def main(reporter: Reporter, worker: Worker, ended: set[str]) -> None:
        bench.cri.error = CriError(Code.UNIMPLEMENTED, "too many open files", connection=False)
        await look(bench, reporter)
        await asyncio.sleep(5)
        found = condition(bench.api.node.status.conditions, names.SERVING_CONDITION)
        assert found is not None
        assert (found.status, found.reason) == ("False", "CRIMissing")
        assert found.message == "containerd serves without its CRI plugin: too many open files"

    play(bench, main)
