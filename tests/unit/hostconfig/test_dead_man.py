"""The script that the host runs when we died in a change, by a real shell beside a systemctl that is told the state."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

import pytest
from hostconfig_bench import KATA, MAIN, Bench, Killed

from reconciler.sim import deadman

STATE = "/var/lib/runtime-reconciler"
LATE = ("/bin/sh", f"{STATE}/undo.sh")
EARLY = (*LATE, "early")
UNDONE = ["reset-failed", "restart"]


@pytest.fixture
async def died(bench: Bench) -> Bench:
    """A host whose change was written, and whose maker died before it could say that it is proven."""
    await bench.engine().apply("kata", "uid-1", KATA)
    proven = bench.steps.seen.index("proven")
    await bench.engine().remove("kata")
    bench.steps.seen.clear()
    bench.steps.kill_at = proven
    with pytest.raises(Killed):
        await bench.engine().apply("kata", "uid-1", KATA)
    return bench


async def run(bench: Bench, argv: tuple[str, ...], active: str = "active", sub: str = "running") -> list[str]:
    return await asyncio.to_thread(deadman.run, bench.root, argv, active=active, sub=sub)


def state(bench: Bench) -> Path:
    return bench.root / STATE.lstrip("/")


async def test_it_is_armed_twice(died: Bench) -> None:
    assert died.machine.timers == {
        "runtime-reconciler-undo-early": (15.0, EARLY),
        "runtime-reconciler-undo": (45.0, LATE),
    }


@pytest.mark.parametrize(
    ("active", "sub", "verbs"),
    [
        ("failed", "failed", UNDONE),
        ("inactive", "dead", UNDONE),
        ("activating", "auto-restart", UNDONE),
        ("activating", "start", []),
        ("active", "running", []),
        ("deactivating", "stop-sigterm", []),
    ],
)
async def test_early_it_acts_on_a_unit_that_is_down(active: str, sub: str, verbs: list[str], died: Bench) -> None:
    written = died.config.read_bytes()
    assert await run(died, EARLY, active, sub) == verbs
    assert died.config.read_bytes() == (MAIN if verbs else written)


async def test_late_it_acts_whatever_the_unit_does_and_the_next_of_us_finds_it_undone(died: Bench) -> None:
    assert await run(died, LATE) == UNDONE
    assert died.config.read_bytes() == MAIN
    assert await run(died, LATE) == []
    died.machine.boot()
    died.machine.starts = 0
    (outcome,) = await died.engine().recover()
    assert (outcome.undone, died.machine.starts, died.machine.timers) == (True, 0, {})
    assert died.engine().journal() == {}


async def test_while_one_of_us_holds_the_lock_it_does_nothing(died: Bench) -> None:
    written = died.config.read_bytes()
    with (state(died) / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert await run(died, LATE, "failed", "failed") == []
    assert died.config.read_bytes() == written


async def test_a_file_that_somebody_edited_since_stays(died: Bench) -> None:
    died.config.write_bytes(died.config.read_bytes() + b"# site\n")
    assert await run(died, LATE) == []
    assert died.config.read_bytes().endswith(b"# site\n")


async def test_without_its_copy_it_touches_nothing(died: Bench) -> None:
    """The change was closed, and the switch could not be disarmed."""
    written = died.config.read_bytes()
    (state(died) / "undo-0").unlink()
    assert await run(died, LATE) == []
    assert died.config.read_bytes() == written
