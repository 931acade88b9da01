"""Whatever step a process dies at, the next one brings the host to an end: all of the change, or nothing of it."""

from __future__ import annotations

import pytest
from hostconfig_bench import KATA, MAIN, Bench, Killed

from reconciler.hostconfig import Verdict


async def steps_of_apply(bench: Bench) -> int:
    await bench.engine().apply("kata", "uid-1", KATA)
    return len(bench.steps.seen)


async def kill(bench: Bench, step: int, operation: str) -> None:
    """Run `operation` in an engine that dies at `step`."""
    bench.steps.seen.clear()
    bench.steps.kill_at = step
    engine = bench.engine()
    work = engine.apply("kata", "uid-1", KATA) if operation == "apply" else engine.remove("kata")
    with pytest.raises(Killed):
        await work


@pytest.mark.parametrize("step", range(13))
async def test_apply_killed_anywhere_then_applied_again(bench: Bench, step: int) -> None:
    await kill(bench, step, "apply")
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert outcome.verdict in (Verdict.CHANGED, Verdict.UNCHANGED)
    assert bench.machine.handlers == ("kata-qemu", "runc")
    assert bench.machine.starts == 1
    assert bench.engine().journal() == {"kata": "uid-1"}
    assert bench.leftovers() == []
    assert bench.machine.armed is None


@pytest.mark.parametrize("step", range(13))
async def test_apply_killed_anywhere_then_only_recovered(bench: Bench, step: int) -> None:
    await kill(bench, step, "apply")
    await bench.engine().recover()
    written = bench.config.read_bytes() != MAIN
    assert bench.machine.handlers == (("kata-qemu", "runc") if written else ("runc",))
    assert bench.machine.starts == (1 if written else 0)
    assert bench.engine().journal() == ({"kata": "uid-1"} if written else {})
    assert bench.leftovers() == []
    assert await bench.engine().recover() == []


@pytest.mark.parametrize("step", range(13))
async def test_remove_killed_anywhere_then_removed_again(bench: Bench, step: int) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    bench.machine.starts = 0
    await kill(bench, step, "remove")
    outcome = await bench.engine().remove("kata")
    assert outcome.verdict in (Verdict.CHANGED, Verdict.UNCHANGED)
    assert bench.config.read_bytes() == MAIN
    assert bench.machine.handlers == ("runc",)
    assert bench.machine.starts == 1
    assert bench.engine().journal() == {}
    assert bench.leftovers() == []


@pytest.mark.parametrize("step", range(13))
async def test_remove_killed_anywhere_then_only_recovered_leaves_no_bytes(bench: Bench, step: int) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    await kill(bench, step, "remove")
    await bench.engine().recover()
    assert bench.leftovers() == []


@pytest.mark.parametrize("fault", ["exits", "no CRI"])
async def test_a_bad_apply_killed_anywhere_is_undone_with_two_restarts(bench: Bench, fault: str) -> None:
    bench.machine.rejects = lambda handlers: fault if "kata-qemu" in handlers else ""
    total = await steps_of_apply(bench)
    for step in range(total):
        bench.machine.starts = 0
        await kill(bench, step, "apply")
        await bench.engine().recover()
        assert bench.config.read_bytes() == MAIN, step
        assert bench.machine.handlers == ("runc",), step
        assert bench.machine.starts <= 2, step
        assert bench.engine().journal() == {}, step
        assert bench.leftovers() == [], step


async def test_thirteen_steps_are_all_of_them(bench: Bench) -> None:
    assert await steps_of_apply(bench) == 13


async def test_a_new_file_that_the_host_took_away_by_itself_leaves_nothing(bench: Bench) -> None:
    bench.config.unlink()
    bench.machine.boot()
    await bench.engine().apply("kata", "uid-1", KATA)
    restart = bench.steps.seen.index("restart")
    await bench.engine().remove("kata")
    await kill(bench, restart, "apply")
    assert bench.machine.armed is not None
    bench.config.rename(bench.root / "var/lib/runtime-reconciler/rejected-0")  # as the dead-man switch does it
    (outcome,) = await bench.engine().recover()
    assert outcome.undone
    assert not bench.config.exists()
    assert bench.leftovers() == []
