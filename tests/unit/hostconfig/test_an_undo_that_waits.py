"""An undo that the disk refuses stays pending, and nothing else is begun before it was done."""

from __future__ import annotations

import errno
import os

from hostconfig_bench import KATA, MAIN, Bench

from reconciler.api.noderuntime import Handler, RevisionData
from reconciler.hostconfig import Code, Verdict
from reconciler.hostconfig.state import State
from reconciler.hostconfig.writing import nothing

GVISOR = RevisionData(handlers=(Handler(name="runsc", runtime_type="io.containerd.runsc.v1"),))


class FailingDisk:
    """Fails at the n-th of the steps that begin so, counted from 0."""

    def __init__(self, **at: tuple[int, ...]) -> None:
        self._at, self._seen = at, dict.fromkeys(at, 0)

    def __call__(self, step: str) -> None:
        name = step.partition(" ")[0]
        if name not in self._at:
            return
        number = self._seen[name]
        self._seen[name] += 1
        if number in self._at[name]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_another_change_is_refused_until_the_undo_was_done(bench: Bench) -> None:
    # written, but not durably: taken back, which fails then, and fails again right before the next change
    bench.steps = FailingDisk(sync=(0,), temporary=(1, 2))  # type: ignore[assignment]
    engine = bench.engine()
    first = await engine.apply("kata", "uid-1", KATA)
    assert (first.verdict, first.reason) == (Verdict.REFUSED, Code.NOT_WRITABLE)
    assert not first.undone
    assert b"kata-qemu" in bench.config.read_bytes()
    second = await engine.apply("gvisor", "uid-2", GVISOR)
    assert (second.verdict, second.reason) == (Verdict.REFUSED, Code.NOT_WRITABLE)
    assert b"runsc" not in bench.config.read_bytes()
    pending = State(bench.root / "var/lib/runtime-reconciler", nothing).load().pending
    assert pending is not None
    assert pending.name == "kata"
    third = await engine.apply("gvisor", "uid-2", GVISOR)
    assert third.verdict is Verdict.CHANGED
    assert b"kata-qemu" not in bench.config.read_bytes()
    assert bench.machine.handlers == ("runc", "runsc")
    await engine.remove("gvisor")
    assert bench.config.read_bytes() == MAIN
    assert bench.engine().journal() == {}
