"""configure and unconfigure: what is checked before the first write, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from reconciler.agent.work import Worker
from reconciler.api import names
from reconciler.api.meta import ConfigMap, ControllerRevision
from reconciler.api.node import NodeState, Report, Stage, WorkReport, WorkResult, encode
from reconciler.api.noderuntime import Handler, RevisionData, WrittenBy
from reconciler.hostconfig import Code, Outcome, Verdict
from reconciler.kube.errors import Forbidden, ServerError, TransportError
from reconciler.sim import clock
from tests.unit.agent.bench import OUTAGE, Bench

KATA = RevisionData(handlers=(Handler(name="kata"),))


def state(stage: Stage = Stage.CONFIGURE, **more: Any) -> NodeState:
    return NodeState(uid="u", stage=stage, target="r1", since=clock.EPOCH, **more)


def answer(stage: Stage, result: WorkResult, reason: str = "", message: str = "") -> WorkReport:
    return WorkReport(uid="u", stage=stage, revision="r1", attempt=1, result=result, reason=reason, message=message)


def play(
    bench: Bench,
    asked: NodeState,
    main: Callable[[Worker], Awaitable[None]],
    *,
    data: RevisionData | None = KATA,
    over: Callable[[str], bool] = lambda uid: False,
    to_come: Callable[[str], bool] = lambda uid: False,
) -> None:
    if data is not None:
        bench.api.revisions["kata-r1"] = ControllerRevision(data=msgspec.Raw(msgspec.json.encode(data)))

    async def serve() -> None:
        bench.cri.handlers = ("kata", "runc")

    async def body() -> None:
        bench.barrier.open()
        bench.host.during = bench.host.during or serve
        worker = bench.worker(over, to_come)
        worker.see(bench.api.ask("kata", asked))
        task = asyncio.create_task(worker.run())
        await asyncio.sleep(0.5)
        await main(worker)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


def test_configure_writes_and_answers_done(bench: Bench) -> None:
    async def main(worker: Worker) -> None:
        assert bench.host.changes == [("apply", "kata")]
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}
        assert ("restarted", "agent") in bench.metrics.told

    play(bench, state(), main)


def test_what_made_a_start_slow_is_told_by_an_event(bench: Bench) -> None:
    hung = "no answer from the shim of pod shop/web"
    bench.host.outcome = Outcome(Verdict.CHANGED, None, hung, restarted=True, outage=10.04)

    async def main(worker: Worker) -> None:
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}
        assert bench.recorder.events == [("ContainerdStartSlow", f"configure: containerd was away for 10.0 s: {hung}")]

    play(bench, state(), main)


def test_a_usual_restart_is_no_event(bench: Bench) -> None:
    async def main(worker: Worker) -> None:
        assert (bench.host.changes, bench.recorder.events) == ([("apply", "kata")], [])

    play(bench, state(), main)


def test_work_is_done_once(bench: Bench) -> None:
    async def main(worker: Worker) -> None:
        for _ in range(5):
            worker.see(bench.api.ask("other", state(Stage.READY)))
            await asyncio.sleep(60)
        assert bench.host.changes == [("apply", "kata")]

    play(bench, state(), main)


def test_without_handlers_configure_seals_the_install(bench: Bench) -> None:
    bench.cri.run("p", alive=False)

    async def main(worker: Worker) -> None:
        assert bench.host.changes == []
        assert bench.cri.stopped == ["s-p"]
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}

    play(bench, state(pod="p"), main, data=RevisionData())


def test_a_revision_without_handlers_takes_out_what_an_older_one_wrote(bench: Bench) -> None:
    bench.host.held = {"kata": "u"}

    async def main(worker: Worker) -> None:
        assert bench.host.changes == [("remove", "kata")]
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}

    play(bench, state(), main, data=RevisionData())


def test_nothing_is_written_while_the_payload_still_runs(bench: Bench) -> None:
    bench.cri.run("p")

    async def main(worker: Worker) -> None:
        assert (bench.host.changes, worker.answers) == ([], {})
        await asyncio.sleep(4)
        waits = answer(Stage.CONFIGURE, WorkResult.WAITING, "PodStillRunning", "a container of pod p still runs")
        assert worker.answers == {"kata": waits}
        await bench.cri.stop_container("c-p", grace=0, timeout=1)
        await asyncio.sleep(10)
        assert bench.host.changes == [("apply", "kata")]
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}

    play(bench, state(pod="p"), main)


@pytest.mark.parametrize("stage", [Stage.CONFIGURE, Stage.UNCONFIGURE])
def test_nothing_is_written_while_a_payload_runs_whose_pod_is_gone(bench: Bench, stage: Stage) -> None:
    bench.cri.run("stray")
    bench.cri.pods[-1] = replace(bench.cri.pods[-1], labels={names.COMPONENT_LABEL: names.COMPONENT_PHASE})

    async def main(worker: Worker) -> None:
        await asyncio.sleep(4)
        message = "a container of pod stray (stray) still runs"
        assert worker.answers == {"kata": answer(stage, WorkResult.WAITING, "PodStillRunning", message)}
        assert bench.host.changes == []
        await bench.cri.stop_container("c-stray", grace=0, timeout=1)
        await asyncio.sleep(10)
        assert worker.answers == {"kata": answer(stage, WorkResult.DONE)}

    play(bench, state(stage), main)


@pytest.mark.parametrize("stage", [Stage.CONFIGURE, Stage.UNCONFIGURE])
def test_a_pod_that_has_not_begun_is_waited_for(bench: Bench, stage: Stage) -> None:
    """The goal changed while its image was pulled: CRI shows nothing of it, and kubelet may start it at any moment."""
    waiting = {"p"}

    async def main(worker: Worker) -> None:
        await asyncio.sleep(4)
        assert bench.host.changes == []
        message = "pod p has no container yet and may get one"
        assert worker.answers == {"kata": answer(stage, WorkResult.WAITING, "PodStillRunning", message)}
        waiting.clear()
        worker.nudge()
        await asyncio.sleep(1)
        assert worker.answers == {"kata": answer(stage, WorkResult.DONE)}

    play(bench, state(stage, pod="p"), main, to_come=lambda uid: uid in waiting)


def test_work_that_waited_and_is_not_asked_for_any_more_is_let_go_of(bench: Bench) -> None:
    bench.cri.run("p")

    async def main(worker: Worker) -> None:
        await asyncio.sleep(4)
        assert worker.answers["kata"].result is WorkResult.WAITING
        worker.see(bench.api.ask("kata", state(Stage.INSTALL)))
        await asyncio.sleep(0.1)
        assert worker.answers == {}

    play(bench, state(pod="p"), main)


def test_configure_waits_while_cri_cannot_be_asked(bench: Bench) -> None:
    bench.cri.error = OUTAGE

    async def main(worker: Worker) -> None:
        await asyncio.sleep(10)
        assert bench.host.changes == []
        assert worker.answers["kata"].reason == "ContainerdNotServing"

    play(bench, state(pod="p"), main)


def test_unconfigure_works_while_cri_is_down_when_the_pod_is_known_to_be_over(bench: Bench) -> None:
    bench.cri.error = OUTAGE

    async def main(worker: Worker) -> None:
        assert bench.host.changes == [("remove", "kata")]

    play(bench, state(Stage.UNCONFIGURE, pod="p"), main, over=lambda uid: uid == "p")


def test_a_node_that_asks_for_something_else_by_now_is_not_written(bench: Bench) -> None:
    async def moved(resource: Any, name: str, namespace: str = "") -> Any:
        return bench.api.node if resource.plural == "nodes" else bench.api.revisions[name]

    async def body() -> None:
        bench.barrier.open()
        bench.api.revisions["kata-r1"] = ControllerRevision(data=msgspec.Raw(msgspec.json.encode(KATA)))
        worker = bench.worker()
        worker.see(bench.api.ask("kata", state()))
        bench.api.ask("kata", state(attempt=2))  # the watch has not delivered it
        task = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        assert (bench.host.changes, worker.answers) == ([], {})
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


@pytest.mark.parametrize(
    ("written", "data"),
    [((), KATA), (("kata",), None), (("kata",), RevisionData())],
    ids=["by the payload", "of a lost revision", "of another revision"],
)
def test_a_handler_in_use_is_not_taken_away(bench: Bench, written: tuple[str, ...], data: RevisionData | None) -> None:
    bench.host.handlers = frozenset(written)
    bench.cri.run("web", handler="kata")

    async def main(worker: Worker) -> None:
        await asyncio.sleep(10)
        assert bench.host.changes == []
        assert worker.answers["kata"] == answer(
            Stage.UNCONFIGURE, WorkResult.WAITING, "HandlerInUse", "1 sandboxes use it, shop/web among them"
        )

    play(bench, state(Stage.UNCONFIGURE), main, data=data)


def test_force_takes_it_away_all_the_same(bench: Bench) -> None:
    bench.cri.run("web", handler="kata")

    async def main(worker: Worker) -> None:
        assert bench.host.changes == [("remove", "kata")]

    play(bench, state(Stage.UNCONFIGURE, forced=True), main)


@pytest.mark.parametrize("left", [KATA, RevisionData()], ids=["writes others", "writes nothing"])
def test_a_handler_in_use_is_not_taken_away_by_an_upgrade_either(bench: Bench, left: RevisionData) -> None:
    bench.host.held = {"kata": "u"}
    bench.host.handlers = frozenset({"kata", "old"}) if left is KATA else frozenset({"old"})
    bench.cri.handlers = ("kata", "runc")
    bench.cri.run("stays", handler="kata")
    bench.cri.run("web", handler="old")

    async def main(worker: Worker) -> None:
        await asyncio.sleep(10)
        assert bench.host.changes == []
        message = "1 sandboxes use it, shop/web among them"
        assert worker.answers["kata"] == answer(Stage.CONFIGURE, WorkResult.WAITING, "HandlerInUse", message)
        worker.see(bench.api.ask("kata", state(forced=True)))
        await asyncio.sleep(1)
        assert worker.answers["kata"].result is WorkResult.DONE
        assert len(bench.host.changes) == 1

    play(bench, state(), main, data=left)


def test_no_upgrade_takes_a_handler_away_while_cri_cannot_be_asked_who_uses_it(bench: Bench) -> None:
    bench.host.handlers = frozenset({"old"})
    bench.cri.error = OUTAGE

    async def main(worker: Worker) -> None:
        await asyncio.sleep(10)
        assert (bench.host.changes, worker.answers["kata"].reason) == ([], "ContainerdNotServing")

    play(bench, state(), main)


def test_force_that_was_taken_back_by_now_takes_nothing_away(bench: Bench) -> None:
    bench.cri.run("web", handler="kata")

    async def body() -> None:
        bench.barrier.open()
        worker = bench.worker()
        worker.see(bench.api.ask("kata", state(Stage.UNCONFIGURE, forced=True)))
        bench.api.ask("kata", state(Stage.UNCONFIGURE))  # the watch has not delivered it
        task = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        assert (bench.host.changes, worker.answers) == ([], {})
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


def test_an_undone_change_is_final_for_its_attempt(bench: Bench) -> None:
    bench.host.outcome = Outcome(Verdict.BROKEN, Code.VERIFY_FAILED, "CRI does not serve kata", undone=True)

    async def main(worker: Worker) -> None:
        failed = answer(Stage.CONFIGURE, WorkResult.FAILED, "VerifyFailed", "CRI does not serve kata")
        assert worker.answers == {"kata": failed}
        assert ("transaction", "configure", "broken", "VerifyFailed", "undone") in bench.metrics.told
        await asyncio.sleep(600)
        assert bench.host.changes == [("apply", "kata")]
        worker.see(bench.api.ask("kata", state(attempt=2)))
        await asyncio.sleep(1)
        assert bench.host.changes == [("apply", "kata"), ("apply", "kata")]

    play(bench, state(), main)


def test_a_refused_change_waits_and_is_tried_again(bench: Bench) -> None:
    bench.host.outcome = Outcome(Verdict.REFUSED, Code.INVALID_TOML, "line 3")

    async def main(worker: Worker) -> None:
        await asyncio.sleep(5)
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.WAITING, "InvalidToml", "line 3")}
        bench.host.outcome = Outcome(Verdict.CHANGED)
        await asyncio.sleep(30)
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}

    play(bench, state(), main)


def test_a_handler_of_the_payload_is_only_waited_for(bench: Bench) -> None:
    data = RevisionData(handlers=(Handler(name="kata", written_by=WrittenBy.PAYLOAD),))

    async def main(worker: Worker) -> None:
        await asyncio.sleep(5)
        assert worker.answers["kata"].reason == "HandlerMissing"
        bench.cri.handlers = ("kata", "runc")
        worker.nudge()
        await asyncio.sleep(1)
        assert worker.answers["kata"].result is WorkResult.DONE
        assert bench.host.changes == []

    play(bench, state(), main, data=data)


def test_a_failure_that_was_told_before_a_restart_of_the_agent_is_not_tried_again(bench: Bench) -> None:
    failed = answer(Stage.CONFIGURE, WorkResult.FAILED, "VerifyFailed")
    asked = bench.api.ask("kata", state())
    annotations = {**asked.metadata.annotations, names.REPORT_ANNOTATION: encode(Report(work={"kata": failed}))}
    meta = msgspec.structs.replace(asked.metadata, annotations=annotations)
    bench.api.node = msgspec.structs.replace(asked, metadata=meta)

    async def main(worker: Worker) -> None:
        await asyncio.sleep(60)
        assert bench.host.changes == []
        assert worker.answers == {"kata": failed}

    play(bench, state(), main)


def test_a_stopping_agent_begins_nothing(bench: Bench) -> None:
    async def body() -> None:
        worker = bench.worker()
        worker.stopping = True
        worker.see(bench.api.ask("kata", state()))
        task = asyncio.create_task(worker.run())
        await asyncio.sleep(60)
        assert bench.host.changes == []
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


STOP = ConfigMap(data={names.STOP_BY: "ann", names.STOP_REASON: "look"})


@pytest.mark.parametrize("stage", [Stage.CONFIGURE, Stage.UNCONFIGURE])
def test_nothing_is_written_while_everything_is_stopped_and_that_is_asked_again_within_10_s(
    bench: Bench, stage: Stage
) -> None:
    bench.api.stopped = STOP

    async def main(worker: Worker) -> None:
        await asyncio.sleep(120)
        waits = answer(stage, WorkResult.WAITING, "Stopped", "everything is stopped by ann: look")
        assert (bench.host.changes, worker.answers) == ([], {"kata": waits})
        gaps = [later - earlier for earlier, later in pairwise(bench.api.asked)]
        assert all(5 <= gap <= 10 for gap in gaps)
        assert len({round(gap, 3) for gap in gaps}) > 5  # with jitter
        bench.api.stopped = None
        await asyncio.sleep(10)
        assert len(bench.host.changes) == 1
        assert worker.answers == {"kata": answer(stage, WorkResult.DONE)}

    play(bench, state(stage), main)


@pytest.mark.parametrize("stage", [Stage.CONFIGURE, Stage.UNCONFIGURE])
def test_a_stop_that_comes_after_the_plan_was_made_is_seen_right_before_the_first_write(
    bench: Bench, stage: Stage
) -> None:
    async def stop_now() -> None:
        if len(bench.api.asked) == 2:
            bench.api.stopped = STOP

    bench.api.before_answer = stop_now

    async def main(worker: Worker) -> None:
        await asyncio.sleep(60)
        assert bench.host.changes == []
        assert worker.answers["kata"].reason == "Stopped"

    play(bench, state(stage), main)


@pytest.mark.parametrize(
    "error", [Forbidden(403, "Forbidden", "no right"), TransportError("no route"), ServerError(500, "", "broken")]
)
def test_nothing_is_written_while_nobody_can_be_asked_whether_everything_is_stopped(
    bench: Bench, error: Exception
) -> None:
    bench.api.stopped = error

    async def main(worker: Worker) -> None:
        await asyncio.sleep(30)
        assert bench.host.changes == []
        told = worker.answers["kata"]
        assert (told.result, told.reason) == (WorkResult.WAITING, "StopUnknown")
        assert told.message == f"it cannot be asked whether everything is stopped: {error}"

    play(bench, state(), main)


def test_an_answer_that_took_too_long_lets_nothing_begin(bench: Bench) -> None:
    async def slow() -> None:
        await asyncio.sleep(1.5)

    bench.api.before_answer = slow

    async def main(worker: Worker) -> None:
        await asyncio.sleep(60)
        assert bench.host.changes == []
        bench.api.before_answer = None
        await asyncio.sleep(15)
        assert bench.host.changes == [("apply", "kata")]

    play(bench, state(), main)


def test_without_anything_to_write_an_install_is_sealed_although_everything_is_stopped(bench: Bench) -> None:
    bench.api.stopped = STOP

    async def main(worker: Worker) -> None:
        assert worker.answers == {"kata": answer(Stage.CONFIGURE, WorkResult.DONE)}

    play(bench, state(), main, data=RevisionData())
