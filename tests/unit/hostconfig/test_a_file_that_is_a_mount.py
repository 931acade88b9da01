"""A bind-mounted configuration cannot be renamed over: it is written in place, and a kill may tear it (design 6.7).

The journal holds both contents before the first byte, so that the next run knows its own half and ends the work.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from faulty_calls import Calls
from hostconfig_bench import Bench, Killed
from test_every_system_call import CALLS, ended, prepared, run

from reconciler.hostconfig import Outcome, Verdict
from reconciler.hostconfig.writing import torn


@pytest.fixture
def mounted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """`bench` with its configuration a mount point, as far as rename and unlink can tell."""
    for name in ("replace", "rename"):
        real = getattr(os, name)

        def call(source: object, target: object, *args: object, real: object = real, **more: object) -> None:
            if Path(str(target)) == bench.config:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            real(source, target, *args, **more)  # type: ignore[operator]

        monkeypatch.setattr(os, name, call)
    return bench


async def test_it_stays_the_same_file(mounted: Bench) -> None:
    inode = mounted.config.stat().st_ino
    before, after = await prepared(mounted, "apply")
    assert (await run(mounted, "apply")).verdict is Verdict.CHANGED
    assert (mounted.config.read_bytes(), mounted.config.stat().st_ino) == (after, inode)
    assert (await run(mounted, "remove")).verdict is Verdict.CHANGED
    assert (mounted.config.read_bytes(), mounted.config.stat().st_ino) == (before, inode)


@pytest.mark.parametrize("operation", ["apply", "remove"])
async def test_killed_at_every_call_the_next_run_ends_the_work(
    mounted: Bench, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    before, after = await prepared(mounted, operation)
    calls = Calls(monkeypatch, mounted)
    halves = 0
    for number in range(CALLS):
        mounted.machine.starts = 0
        with calls.faults(lambda n, name, at=number: Killed(name) if n == at else None, half_write=True):
            try:
                await run(mounted, operation)
                break
            except Killed:
                what = f"killed at call {number}"
        halves += mounted.config.read_bytes() not in (before, after)
        await ended(mounted, operation, after, what)
        assert mounted.machine.starts == 1, what
        await run(mounted, "remove" if operation == "apply" else "apply")
    # a removal cuts the end off: its bytes are the same up to there
    assert halves > 0 or operation == "remove", "no kill has torn the file: nothing was tried"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
async def test_a_write_that_fails_in_the_middle_does_not_stay_in_the_middle(
    mounted: Bench, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    before, after = await prepared(mounted, "apply")
    calls = Calls(monkeypatch, mounted)
    for number in range(CALLS):

        def fault(n: int, name: str, at: int = number) -> BaseException | None:
            return OSError(code, os.strerror(code)) if n == at else None

        with calls.faults(fault, half_write=True):
            outcome: Outcome = await run(mounted, "apply")
            made = len(calls.seen)
        what = f"call {number}: {outcome}"
        await mounted.engine().recover()
        held = {before: {}, after: {"kata": "uid-1"}}
        assert mounted.config.read_bytes() in held, what + repr(mounted.config.read_bytes()[-120:])
        assert mounted.engine().journal() == held[mounted.config.read_bytes()], what
        await run(mounted, "remove")
        if number >= made:
            break


def test_torn_is_a_beginning_of_the_new_and_the_rest_of_the_old() -> None:
    old, new = b"version = 2\n[a]\nx = 1\n", b"version = 2\n[a]\nx = 1\n[b]\n"
    assert torn(old + b"[b", old, new)
    assert torn(old + b"\0\0\0\0", old, new)  # space was reserved, nothing written
    assert torn(b"version = 2\n[a]", b"", b"version = 2\n[a]\n")
    assert torn(b"12cdef", b"abcdef", b"123456")
    assert torn(b"12cdef", b"abcdef", b"12")  # written, not cut yet


def test_what_somebody_else_wrote_is_not_torn() -> None:
    old, new = b"version = 2\n[a]\nx = 1\n", b"version = 2\n[a]\nx = 1\n[b]\n"
    assert not torn(b"version = 2\n[a]\nx = 2\n[b]\n", old, new)
    assert not torn(old + b"# note\n", old, new)
    assert not torn(new + b"# note\n", old, new)
    assert not torn(b"", old, new)
    assert not torn(b"12cdeZ", b"abcdef", b"12")
