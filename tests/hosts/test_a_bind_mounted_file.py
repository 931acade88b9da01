"""A configuration that is a mount point: changed in place, and taken back in place by us and by the host alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostconfig_bench import KATA, MAIN, Bench, Killed

from reconciler.hostconfig import Verdict
from reconciler.sim import deadman


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    subprocess.run(["mount", "--bind", bench.config, bench.config], check=True)
    try:
        yield bench
    finally:
        subprocess.run(["umount", bench.config], check=True)


async def test_applied_and_removed(mounted: Bench) -> None:
    assert (await mounted.engine().apply("kata", "uid-1", KATA)).verdict is Verdict.CHANGED
    assert b"kata-qemu" in mounted.config.read_bytes()
    assert (await mounted.engine().remove("kata")).verdict is Verdict.CHANGED
    assert mounted.config.read_bytes() == MAIN
    assert mounted.leftovers() == []


async def test_a_bad_change_is_taken_back(mounted: Bench) -> None:
    mounted.machine.rejects = lambda handlers: "exits" if "kata-qemu" in handlers else ""
    outcome = await mounted.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.undone) == (Verdict.BROKEN, True)
    assert mounted.config.read_bytes() == MAIN


async def test_the_host_takes_it_back_without_us(mounted: Bench) -> None:
    await mounted.engine().apply("kata", "uid-1", KATA)
    proven = mounted.steps.seen.index("proven")
    await mounted.engine().remove("kata")
    mounted.steps.seen.clear()
    mounted.steps.kill_at = proven
    with pytest.raises(Killed):
        await mounted.engine().apply("kata", "uid-1", KATA)
    assert mounted.machine.armed is not None
    verbs = deadman.run(mounted.root, mounted.machine.armed, active="active", sub="running")
    assert verbs == ["reset-failed", "restart"]
    assert mounted.config.read_bytes() == MAIN
