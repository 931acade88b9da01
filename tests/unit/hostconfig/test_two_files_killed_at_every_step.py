"""On containerd 2.x a change is two files: whatever step a process dies at, both are there or neither is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostconfig_bench import KATA, MAIN, Bench, HostCri, HostSystemd, Killed, _Clock
from hostconfig_trees import folders, read

from reconciler.hostconfig import HostConfig, Timing, Verdict
from reconciler.hostconfig.cri_section import served_runtimes
from reconciler.hostconfig.effective import load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.version import parse

RELEASE = "2.2.9"
CONFIG, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/runtime-reconciler-kata.toml"


class Machine(HostSystemd):
    """A containerd 2.2 that reads its imports."""

    def boot(self) -> None:
        super().boot()
        self.handlers = tuple(sorted(served_runtimes(load(HostRoot(self.root), "", parse(RELEASE)))))
        fault = self.rejects(set(self.handlers))
        self.active, self.serves = "failed" if fault == "exits" else "active", fault == ""
        self.result = "exit-code" if fault == "exits" else "success"


class Bench2(Bench):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.machine = Machine(root)

    def engine(self, *, online: bool = True) -> HostConfig:
        return HostConfig(
            self.root,
            "",
            RELEASE,
            systemd=self.machine,
            cri=HostCri(self.machine),
            clock=_Clock(self.machine),
            timing=Timing(lock_wait=0.0, restart=1.0, verify=0.5, poll=0.0),
            boot_id=lambda: "boot-1",
            trace=self.steps,
        )

    def kill_at(self, step: int) -> None:
        self.steps.seen.clear()
        self.steps.kill_at = step


@pytest.fixture
def bench(tmp_path: Path) -> Bench2:
    return Bench2(tmp_path)


async def steps_of(bench: Bench2, operation: str) -> int:
    bench.steps.seen.clear()
    engine = bench.engine()
    await (engine.apply("kata", "uid", KATA) if operation == "apply" else engine.remove("kata"))
    return len(bench.steps.seen)


async def test_apply_and_remove_at_every_step(bench: Bench2) -> None:
    for step in range(await steps_of(bench, "apply")):
        await bench.engine().remove("kata")
        bench.machine.starts = 0
        bench.kill_at(step)
        with pytest.raises(Killed):
            await bench.engine().apply("kata", "uid", KATA)
        assert load(HostRoot(bench.root), "", parse(RELEASE)).fatal == [], step
        await bench.engine().recover()
        files = read(bench.root)
        assert (DROP_IN in files) == (b"imports" in files[CONFIG]), step
        assert bench.machine.handlers == (("kata-qemu", "runc") if DROP_IN in files else ("runc",)), step
        assert bench.machine.starts <= 1, step
    await bench.engine().apply("kata", "uid", KATA)
    for step in range(await steps_of(bench, "remove")):
        await bench.engine().apply("kata", "uid", KATA)
        bench.machine.starts = 0
        bench.kill_at(step)
        with pytest.raises(Killed):
            await bench.engine().remove("kata")
        assert load(HostRoot(bench.root), "", parse(RELEASE)).fatal == [], step
        assert (await bench.engine().remove("kata")).verdict in (Verdict.CHANGED, Verdict.UNCHANGED)
        assert (read(bench.root), folders(bench.root)) == ({CONFIG: MAIN}, {"/etc", "/etc/containerd"}), step
        assert bench.machine.handlers == ("runc",), step
        assert bench.machine.starts <= 1, step


@pytest.mark.parametrize("fault", ["exits", "no CRI"])
async def test_a_bad_change_is_undone_whole(bench: Bench2, fault: str) -> None:
    bench.machine.rejects = lambda handlers: fault if "kata-qemu" in handlers else ""
    for step in range(await steps_of(bench, "apply")):
        bench.machine.starts = 0
        bench.kill_at(step)
        with pytest.raises(Killed):
            await bench.engine().apply("kata", "uid", KATA)
        await bench.engine().recover()
        assert (read(bench.root), folders(bench.root)) == ({CONFIG: MAIN}, {"/etc", "/etc/containerd"}), step
        assert bench.machine.handlers == ("runc",), step
        assert bench.machine.starts <= 2, step
