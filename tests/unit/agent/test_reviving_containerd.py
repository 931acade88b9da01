"""A failed containerd is reset and started, a bounded number of times, and never against a person's will."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from reconciler.agent.revive import Reviver
from reconciler.hostconfig import Code, Finding, Findings
from reconciler.sim import clock
from reconciler.systemd.api import UnitState
from tests.unit.agent.bench import UNIT, Bench

FAILED = replace(UNIT, active_state="failed", result="start-limit-hit")


class Recorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, regarding: dict[str, str], kind: str, reason: str, note: str, action: str) -> None:
        self.reasons.append(reason)


class Counted(Reviver):
    """How often it has looked."""

    looks = 0

    def _due(self, unit: UnitState | None) -> bool:
        self.looks += 1
        return super()._due(unit)


def play(bench: Bench, main: Callable[[Recorder], Awaitable[None]]) -> None:
    async def later(reviver: Counted, recorder: Recorder) -> None:
        await main(recorder)

    play_later(bench, later)


def play_later(bench: Bench, main: Callable[[Counted, Recorder], Awaitable[None]]) -> None:
    async def body() -> None:
        recorder = Recorder()
        reviver = Counted(bench.deps, bench.probe, recorder)  # type: ignore[arg-type]
        await bench.probe.look()
        task = asyncio.create_task(reviver.run())
        await main(reviver, recorder)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


def test_the_start_limit_is_reset_and_the_unit_started(bench: Bench) -> None:
    bench.systemd.state = FAILED

    async def main(recorder: Recorder) -> None:
        await asyncio.sleep(3.5)
        assert bench.systemd.calls == ["reset-failed", "start"]
        assert recorder.reasons == ["ContainerdRevived"]
        assert ("restarted", "revive") in bench.metrics.told
        assert ("given up", "revived") in bench.metrics.told

    play(bench, main)


def test_at_most_three_times_in_ten_minutes(bench: Bench) -> None:
    bench.systemd.state = FAILED

    async def main(recorder: Recorder) -> None:
        await asyncio.sleep(590)
        assert bench.systemd.calls.count("start") == 3
        assert "ContainerdLeftFailed" in recorder.reasons
        assert ("given up", "left-failed") in bench.metrics.told

    play(bench, main)


@pytest.mark.parametrize(
    "state",
    [
        replace(UNIT, active_state="inactive"),
        replace(FAILED, restart="no"),
        replace(FAILED, unit_file_state="masked"),
        replace(FAILED, job=True),
        UNIT,
    ],
    ids=["stopped by a person", "not to be restarted", "masked", "somebody is at it", "running"],
)
def test_it_is_left_alone(bench: Bench, state: Any) -> None:
    bench.systemd.state = state

    async def main(recorder: Recorder) -> None:
        await asyncio.sleep(60)
        assert (bench.systemd.calls, recorder.reasons) == ([], [])

    play(bench, main)


def test_never_while_the_machine_goes_down(bench: Bench) -> None:
    bench.systemd.state, bench.systemd.system = FAILED, "stopping"

    async def main(recorder: Recorder) -> None:
        await asyncio.sleep(60)
        assert bench.systemd.calls == []

    play(bench, main)


def test_never_on_a_configuration_that_would_not_start(bench: Bench) -> None:
    bench.systemd.state = FAILED
    finding = Finding(Code.INVALID_TOML, "/etc/containerd/config.toml", "line 3: not valid")
    bench.host.findings = Findings(loads=False, serves=False, findings=(finding,))

    async def main(recorder: Recorder) -> None:
        await asyncio.sleep(60)
        assert bench.systemd.calls == []
        assert set(recorder.reasons) == {"ContainerdConfigBroken"}
        assert ("given up", "config-broken") in bench.metrics.told

    play(bench, main)


def test_never_into_a_transaction_of_our_own(bench: Bench) -> None:
    bench.systemd.state, bench.host.busy = FAILED, True

    async def main(recorder: Recorder) -> None:
        await asyncio.sleep(60)
        assert bench.systemd.calls == []

    play(bench, main)


def test_at_rest_it_does_not_wake_and_a_unit_that_fails_later_is_started(bench: Bench) -> None:
    async def main(reviver: Counted, recorder: Recorder) -> None:
        await asyncio.sleep(3600)
        assert reviver.looks == 1
        bench.systemd.state = FAILED
        await bench.probe.look()
        reviver.nudge()
        await asyncio.sleep(3.5)
        assert bench.systemd.calls == ["reset-failed", "start"]

    play_later(bench, main)
