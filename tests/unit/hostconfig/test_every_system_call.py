"""A kill or an error at every call that changes the disk or talks to systemd (design 6.7 to 6.9).

Afterwards every file is the old one or the new one, the whole loads and serves, and the next run ends the work
with no restart too many and nothing left behind.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from faulty_calls import Calls
from hostconfig_bench import KATA, MAIN, Bench, Killed

from reconciler.hostconfig import Outcome, Verdict

Operation = Callable[[Bench], Callable[[], object]]
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)
CALLS = 200
"""More than a change makes; a test of its own holds that."""


async def run(bench: Bench, operation: str) -> Outcome:
    engine = bench.engine()
    if operation == "apply":
        return await engine.apply("kata", "uid-1", KATA)
    return await engine.remove("kata")


async def prepared(bench: Bench, operation: str) -> tuple[bytes, bytes]:
    """The configuration before and after `operation`, which is still to be done."""
    await run(bench, "apply")
    after = bench.config.read_bytes()
    if operation == "remove":
        bench.machine.starts = 0
        return after, MAIN
    await run(bench, "remove")
    bench.machine.starts = 0
    return MAIN, after


def whole(bench: Bench, before: bytes, after: bytes, what: str) -> None:
    assert bench.config.read_bytes() in (before, after), what
    assert (bench.machine.active, bench.machine.serves) == ("active", True), what


async def ended(bench: Bench, operation: str, after: bytes, what: str) -> None:
    """The next process recovers and does the work again, without faults."""
    outcome = await run(bench, operation)
    assert outcome.verdict in (Verdict.CHANGED, Verdict.UNCHANGED), (what, outcome)
    assert bench.config.read_bytes() == after, what
    assert bench.machine.handlers == (("kata-qemu", "runc") if operation == "apply" else ("runc",)), what
    assert bench.engine().journal() == ({"kata": "uid-1"} if operation == "apply" else {}), what
    assert bench.leftovers() == [], what
    assert bench.machine.armed is None, what


@pytest.mark.parametrize("operation", ["apply", "remove"])
@pytest.mark.parametrize("half_write", [False, True], ids=["whole", "half"])
async def test_killed_at_every_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, operation: str, half_write: bool
) -> None:
    calls = Calls(monkeypatch, bench)
    before, after = await prepared(bench, operation)
    for number in range(CALLS):
        bench.machine.starts = 0
        with calls.faults(lambda n, name, at=number: Killed(name) if n == at else None, half_write=half_write):
            if not await _killed(bench, operation):
                break
        what = f"killed at call {number}"
        whole(bench, before, after, what)
        await ended(bench, operation, after, what)
        assert bench.machine.starts == 1, what
        await run(bench, "remove" if operation == "apply" else "apply")
    else:
        pytest.fail(f"more than {CALLS} calls")


async def _killed(bench: Bench, operation: str) -> bool:
    try:
        await run(bench, operation)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("operation", ["apply", "remove"])
@pytest.mark.parametrize("code", ERRORS, ids=[errno.errorcode[code] for code in ERRORS])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
async def test_an_error_at_every_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, operation: str, code: int, lasting: bool
) -> None:
    calls = Calls(monkeypatch, bench)
    before, after = await prepared(bench, operation)
    for number in range(CALLS):
        bench.machine.starts = 0
        what = f"{errno.errorcode[code]} at call {number}"

        def fault(n: int, name: str, at: int = number) -> BaseException | None:
            return OSError(code, os.strerror(code)) if n == at or (lasting and n > at) else None

        with calls.faults(fault, half_write=True):
            outcome = await run(bench, operation)
            made = len(calls.seen)
        what = f"{what} ({calls.seen[number] if number < made else 'none'}): {outcome}"
        whole(bench, before, after, what)
        await ended(bench, operation, after, what)
        undone = 1 if outcome.undone else 0
        assert bench.machine.starts <= 1 + 2 * undone, what
        if number >= made:
            break
        await run(bench, "remove" if operation == "apply" else "apply")
    else:
        pytest.fail(f"more than {CALLS} calls")


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
async def test_a_bad_change_and_a_full_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch, lasting: bool) -> None:
    """The way back may meet the full disk as well: then it stays pending, the host's own switch armed, until it can."""
    calls = Calls(monkeypatch, bench)
    bench.machine.rejects = lambda handlers: "exits" if "kata-qemu" in handlers else ""
    for number in range(CALLS):
        bench.machine.starts = 0

        def fault(n: int, name: str, at: int = number) -> BaseException | None:
            return OSError(errno.ENOSPC, "No space left") if n == at or (lasting and n > at) else None

        with calls.faults(fault, half_write=True):
            outcome = await run(bench, "apply")
            made = len(calls.seen)
        what = f"call {number}: {outcome}"
        assert outcome.verdict in (Verdict.BROKEN, Verdict.REFUSED), what
        if bench.machine.active != "active":
            assert bench.machine.armed is not None, what
        await bench.engine().recover()
        whole(bench, MAIN, MAIN, what)
        assert bench.engine().journal() == {}, what
        assert (bench.leftovers(), bench.machine.armed) == ([], None), what
        assert bench.machine.starts <= 2, what
        if number >= made:
            break
    else:
        pytest.fail(f"more than {CALLS} calls")
