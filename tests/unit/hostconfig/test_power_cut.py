"""The power is cut at every call that changes the disk: what was not synced is gone, and the host still starts.

Afterwards each file is the old one or the new one, whole, and the next run ends the work (design 6.7).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hostconfig_bench import KATA, MAIN, Bench, Killed
from power import Platter

from reconciler.hostconfig import Refused, Verdict

CHANGES = ("write", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir")
CALLS = 300
"""More than a change makes; a test of its own holds that."""


class Plug:
    """Pulled at the n-th call that changes the disk: the process ends there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for name in CHANGES:
            monkeypatch.setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.left is not None:
                if self.left == 0:
                    raise Killed
                self.left -= 1
            return real(*arguments, **options)

        return call


async def run(bench: Bench, operation: str) -> Verdict:
    engine = bench.engine()
    outcome = await (engine.apply("kata", "uid-1", KATA) if operation == "apply" else engine.remove("kata"))
    return outcome.verdict


async def cut_everywhere(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, operation: str, *, names_survive: tuple[str, ...]
) -> str:
    """The first thing that was found amiss, with the number of the call; "" when all is well."""
    platter = Platter(bench.root, monkeypatch)
    plug = Plug(monkeypatch)
    await run(bench, "apply")
    applied = bench.config.read_bytes()
    before, after = (MAIN, applied) if operation == "apply" else (applied, MAIN)
    for number in range(CALLS):
        await run(bench, "remove" if operation == "apply" else "apply")
        platter.settle()
        plug.left = number
        try:
            await run(bench, operation)
        except Killed:
            plug.left = None
        else:
            return ""
        platter.cut(names_survive=names_survive)
        bench.boot_id = f"boot-{number + 2}"
        bench.machine.timers.clear()
        if wrong := await _amiss(bench, operation, before, after):
            return f"call {number}: {wrong}"
    pytest.fail(f"more than {CALLS} calls")


async def _amiss(bench: Bench, operation: str, before: bytes, after: bytes) -> str:
    """What is wrong after the boot, or after the next run; "" for nothing."""
    found = bench.config.read_bytes()
    if found not in (before, after):
        return f"config.toml is {found!r}"
    bench.machine.boot()
    try:
        verdict = await run(bench, operation)
        left = bench.leftovers()
    except Refused as error:
        return str(error)
    if verdict not in (Verdict.CHANGED, Verdict.UNCHANGED) or bench.config.read_bytes() != after:
        return f"the next run ends with {verdict}"
    return f"left: {left}" if left else ""


@pytest.mark.parametrize("operation", ["apply", "remove"])
@pytest.mark.parametrize("names_survive", [(), ("etc", "var"), ("etc",), ("var",)], ids="+".join)
async def test_the_power_is_cut_at_every_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, operation: str, names_survive: tuple[str, ...]
) -> None:
    assert await cut_everywhere(bench, monkeypatch, operation, names_survive=names_survive) == ""


async def test_without_the_fsync_of_files_a_host_is_left_with_an_empty_journal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This test can fail: a rename that is durable before the bytes are."""
    sync = Platter._fsync

    def only_directories(self: Platter, handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            sync(self, handle)

    monkeypatch.setattr(Platter, "_fsync", only_directories)
    assert "journal.json cannot be read" in await cut_everywhere(
        bench, monkeypatch, "apply", names_survive=("etc", "var")
    )
