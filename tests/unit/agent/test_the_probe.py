"""The probe keeps the barrier true: by CRI's answers, the unit's state and the identity of the process."""

from __future__ import annotations

import asyncio
import errno
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace

from reconciler.agent.probe import LOOK, NET, Probe
from reconciler.barrier.barrier import State
from reconciler.cri.api import Code, CriError, Version
from reconciler.sim import clock
from tests.unit.agent.bench import OUTAGE, UNIT, Bench


def test_it_opens_when_cri_answers(bench: Bench) -> None:
    async def main() -> None:
        await bench.probe.look()
        assert bench.barrier.state is State.OPEN
        assert bench.probe.version == "1.6.20"

    clock.run(main())


def test_another_process_is_an_outage_even_when_nobody_saw_it(bench: Bench) -> None:
    async def main() -> None:
        states: list[State] = []
        await bench.probe.look()
        bench.barrier.listen(lambda state: states.append(state))
        bench.systemd.state = replace(UNIT, invocation_id="b")
        await bench.probe.look()
        assert states == [State.CLOSED, State.OPEN]

    clock.run(main())


def test_a_missing_cri_plugin_fails_it(bench: Bench) -> None:
    async def main() -> None:
        bench.cri.error = CriError(Code.UNIMPLEMENTED, "too many open files", connection=False)
        await bench.probe.look()
        assert (bench.barrier.state, bench.barrier.reason) == (State.FAILED, "CRIMissing")
        assert bench.probe.why_missing == "too many open files"
        bench.cri.error = None
        await bench.probe.look()
        assert (bench.barrier.state, bench.probe.why_missing) == (State.OPEN, "")

    clock.run(main())


def test_the_unit_says_why_it_is_closed(bench: Bench) -> None:
    async def main() -> None:
        reasons = []
        bench.cri.error = OUTAGE
        for active in ("active", "failed", "inactive"):
            bench.systemd.state = replace(UNIT, active_state=active)
            await bench.probe.look()
            reasons.append(bench.barrier.reason)
        assert reasons == ["NotServing", "UnitFailed", "StoppedByAdmin"]

    clock.run(main())


def test_no_answer_closes_it_as_hung(bench: Bench) -> None:
    async def main() -> None:
        bench.cri.error = CriError(Code.DEADLINE_EXCEEDED, "no answer", connection=False)
        await bench.probe.look()
        assert (bench.barrier.state, bench.barrier.reason) == (State.CLOSED, "Hung")

    clock.run(main())


def test_a_unit_that_failed_with_another_invocation_is_looked_at_now_and_then(bench: Bench) -> None:
    """Each try to start it is an invocation of its own: what the barrier says must not go to and fro."""

    async def main() -> None:
        told: list[str] = []
        looking = asyncio.create_task(bench.probe.run())
        await asyncio.sleep(1)
        bench.barrier.listen(lambda state: told.append(bench.barrier.reason))
        bench.cri.error = OUTAGE
        bench.systemd.state = replace(UNIT, active_state="failed", invocation_id="b")
        bench.systemd.asked = 0
        bench.probe.nudge()
        await asyncio.sleep(10)
        assert told == ["ProcessChanged", "UnitFailed"]
        assert 90 <= bench.systemd.asked <= 110
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking

    clock.run(main())


def test_a_call_of_somebody_else_that_failed_is_a_reason_to_look(bench: Bench) -> None:
    async def main() -> None:
        looking = asyncio.create_task(bench.probe.run())
        await asyncio.sleep(1)
        bench.barrier.close("CallFailed")
        await asyncio.sleep(0.01)
        assert bench.barrier.state is State.OPEN
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking

    clock.run(main())


def test_a_look_that_never_ends_is_given_up_and_the_looking_goes_on(bench: Bench) -> None:
    answer = bench.cri.version

    async def never(*, timeout: float) -> Version:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def main() -> None:
        looking = asyncio.create_task(bench.probe.run())
        await asyncio.sleep(1)
        assert bench.barrier.state is State.OPEN
        bench.cri.version = never  # type: ignore[method-assign]
        await asyncio.sleep(NET + LOOK + 1)
        assert (bench.barrier.state, bench.barrier.reason) == (State.CLOSED, "Hung")
        bench.cri.version = answer  # type: ignore[method-assign]
        await asyncio.sleep(16)
        assert bench.barrier.state is State.OPEN
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking

    clock.run(main())


def test_another_version_of_containerd_is_told_once(bench: Bench) -> None:
    async def main() -> None:
        await bench.probe.look()
        await bench.probe.look()
        assert bench.replaced == 0
        bench.cri.release = "v2.0.11"
        await bench.probe.look()
        await bench.probe.look()
        assert (bench.replaced, bench.probe.version) == (1, "v2.0.11")

    clock.run(main())


def test_a_host_without_an_inotify_instance_is_looked_at_all_the_same(bench: Bench) -> None:
    def none_left(changed: object) -> AbstractAsyncContextManager[None]:
        raise OSError(errno.EMFILE, "Too many open files")

    async def main() -> None:
        probe = Probe(replace(bench.deps, watch=none_left), bench.barrier, bench.wake)
        task = asyncio.create_task(probe.run())
        await asyncio.sleep(1)
        assert bench.barrier.state is State.OPEN
        bench.cri.error = OUTAGE
        await asyncio.sleep(NET)
        assert bench.barrier.state is State.CLOSED
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(main())
