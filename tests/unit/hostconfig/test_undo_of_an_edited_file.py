"""What somebody else wrote into a file after us survives our undo and our removal; our part goes all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from faulty_calls import Calls
from hostconfig_bench import CRI, KATA, MAIN, Bench, Killed, Steps
from hostconfig_trees import read
from test_two_files_killed_at_every_step import CONFIG, DROP_IN, Bench2

from reconciler.hostconfig import Code, Verdict
from reconciler.hostconfig.dropins import LEFT

EDIT = b'[debug]\n  level = "warn"\n'
GPU = b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.gpu]\n  runtime_type = "io.gpu.v1"\n'
CALLS = 200


@pytest.fixture
def two(tmp_path: Path) -> Bench2:
    """A host with containerd 2.2: a drop-in and its import."""
    return Bench2(tmp_path / "two")


def editor(bench: Bench, edits: dict[str, bytes], disliked: Callable[[set[str]], bool]) -> Callable[[set[str]], str]:
    """A containerd that exits on a set of handlers, while somebody appends `edits` to the files, once each."""

    def rejects(handlers: set[str]) -> str:
        if not disliked(handlers):
            return ""
        for path, text in edits.items():
            file = bench.root / path.lstrip("/")
            if file.exists() and text not in file.read_bytes():
                file.write_bytes(file.read_bytes() + text)
        return "exits"

    return rejects


def with_kata(handlers: set[str]) -> bool:
    return "kata-qemu" in handlers


async def test_our_block_goes_and_the_edit_stays(bench: Bench) -> None:
    bench.machine.rejects = editor(bench, {CONFIG: EDIT}, with_kata)
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason, outcome.undone) == (Verdict.BROKEN, Code.VERIFY_FAILED, True)
    assert bench.config.read_bytes() == MAIN + EDIT
    assert (bench.machine.handlers, bench.machine.active, bench.machine.starts) == (("runc",), "active", 2)
    assert (bench.engine().journal(), bench.leftovers()) == ({}, [])


async def test_a_block_that_was_there_before_comes_back(bench: Bench) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    before = bench.config.read_bytes()
    bench.machine.rejects = editor(bench, {CONFIG: EDIT}, lambda handlers: not with_kata(handlers))
    outcome = await bench.engine().remove("kata")
    assert (outcome.verdict, outcome.undone) == (Verdict.BROKEN, True)
    assert bench.config.read_bytes() == MAIN + EDIT + before.removeprefix(MAIN)
    assert (bench.machine.handlers, bench.engine().journal()) == (("kata-qemu", "runc"), {"kata": "uid-1"})


async def test_an_edit_that_needs_our_handler_is_left_alone_and_said(bench: Bench) -> None:
    needs = f'[plugins."{CRI}".containerd]\n  default_runtime_name = "kata-qemu"\n'.encode()
    bench.machine.rejects = editor(bench, {CONFIG: needs}, with_kata)
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.undone) == (Verdict.BROKEN, False)
    assert "not taken back: /etc/containerd/config.toml was edited while we worked" in outcome.message
    assert bench.config.read_bytes().endswith(needs) and b"kata-qemu.v2" in bench.config.read_bytes()


@pytest.mark.parametrize("before", [MAIN, MAIN + GPU])
async def test_an_undo_that_finds_nothing_to_put_back_costs_no_restart(bench: Bench, before: bytes) -> None:
    """Somebody rewrites the file right before our restart: no handler comes, and nothing of ours is there."""
    bench.config.write_bytes(before)
    await bench.machine.restart("containerd.service", timeout=1.0)
    begun = bench.machine.starts

    class Rewritten(Steps):
        def __call__(self, step: str) -> None:
            if step == "reset-failed" and b"kata-qemu" in bench.config.read_bytes():
                bench.config.write_bytes(MAIN + EDIT)

    bench.steps = Rewritten()
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason) == (Verdict.BROKEN, Code.VERIFY_FAILED)
    assert bench.config.read_bytes() == MAIN + EDIT
    assert (bench.machine.handlers, bench.machine.active, bench.machine.starts) == (("runc",), "active", begun + 1)
    assert bench.engine().journal() == {}


async def test_a_file_that_somebody_deleted_stays_deleted(bench: Bench) -> None:
    def rejects(handlers: set[str]) -> str:
        bench.config.unlink(missing_ok=True)
        return "exits" if with_kata(handlers) else ""

    bench.machine.rejects = rejects
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.undone) == (Verdict.BROKEN, True)
    assert not bench.config.exists()
    assert bench.engine().journal() == {}


async def test_a_drop_in_of_ours_keeps_what_others_wrote_into_it(two: Bench2) -> None:
    two.machine.rejects = editor(two, {CONFIG: EDIT, DROP_IN: GPU}, with_kata)
    outcome = await two.engine().apply("kata", "uid", KATA)
    assert (outcome.verdict, outcome.undone) == (Verdict.BROKEN, True)
    assert read(two.root) == {CONFIG: MAIN + EDIT, DROP_IN: LEFT + GPU}
    assert two.machine.handlers == ("runc",)


async def test_an_undo_of_two_edited_files_that_is_killed_goes_on(two: Bench2) -> None:
    """Somebody has taken our import out by then, and has written into our drop-in."""
    appends = editor(two, {DROP_IN: GPU}, with_kata)

    def rejects(handlers: set[str]) -> str:
        if with_kata(handlers):
            two.config.write_bytes(MAIN + EDIT)
        return appends(handlers)

    two.machine.rejects = rejects
    await two.engine().apply("kata", "uid", KATA)
    steps = len(two.steps.seen)
    for step in range(steps):
        two.machine.rejects = lambda handlers: ""
        two.config.write_bytes(MAIN)
        (two.root / DROP_IN.lstrip("/")).unlink(missing_ok=True)
        two.machine.boot()
        two.machine.rejects = rejects
        two.kill_at(step)
        with pytest.raises(Killed):
            await two.engine().apply("kata", "uid", KATA)
        await two.engine().recover()
        assert read(two.root) in ({CONFIG: MAIN}, {CONFIG: MAIN + EDIT, DROP_IN: LEFT + GPU}), step
        assert (two.machine.handlers, two.engine().journal(), two.machine.armed) == (("runc",), {}, None), step


async def test_removal_leaves_what_others_wrote_into_our_drop_in_in_force(two: Bench2) -> None:
    await two.engine().apply("kata", "uid", KATA)
    file = two.root / DROP_IN.lstrip("/")
    file.write_bytes(file.read_bytes() + GPU)
    two.machine.boot()
    assert (await two.engine().apply("kata", "uid", KATA)).verdict is Verdict.UNCHANGED
    assert (await two.engine().remove("kata")).handlers == ("gpu", "runc")
    assert file.read_bytes() == LEFT + GPU
    assert two.machine.handlers == ("gpu", "runc")
    assert (await two.engine().remove("kata")).verdict is Verdict.UNCHANGED
    assert (await two.engine().apply("kata", "uid", KATA)).verdict is Verdict.CHANGED
    assert (await two.engine().remove("kata")).verdict is Verdict.CHANGED
    assert file.read_bytes() == LEFT + GPU


@pytest.mark.parametrize("operation", ["apply", "remove"])
async def test_killed_at_every_call(bench: Bench, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """Whatever a process dies at, the next one takes our part out or puts it back, and the edit stays."""
    calls = Calls(monkeypatch, bench)
    await bench.engine().apply("kata", "uid-1", KATA)
    block = bench.config.read_bytes().removeprefix(MAIN)
    for number in range(CALLS):
        bench.machine.rejects = lambda handlers: ""
        bench.config.write_bytes(MAIN)
        bench.machine.boot()
        await bench.engine().remove("kata")
        if operation == "remove":
            await bench.engine().apply("kata", "uid-1", KATA)
        bench.machine.starts = 0
        disliked = with_kata if operation == "apply" else lambda handlers: not with_kata(handlers)
        bench.machine.rejects = editor(bench, {CONFIG: EDIT}, disliked)
        with calls.faults(lambda n, name, at=number: Killed(name) if n == at else None, half_write=True):
            ended = await survived(bench, operation)
        await bench.engine().recover()
        what = f"killed at call {number}"
        ours = b"" if operation == "apply" else block
        assert bench.config.read_bytes() in (MAIN + ours, MAIN + EDIT + ours), what
        assert bench.machine.handlers == (("runc",) if operation == "apply" else ("kata-qemu", "runc")), what
        assert (bench.machine.active, bench.leftovers(), bench.machine.armed) == ("active", [], None), what
        assert bench.engine().journal() == ({} if operation == "apply" else {"kata": "uid-1"}), what
        assert bench.machine.starts <= 2, what
        if ended:
            break
    else:
        pytest.fail(f"more than {CALLS} calls")


async def survived(bench: Bench, operation: str) -> bool:
    engine = bench.engine()
    try:
        await (engine.apply("kata", "uid-1", KATA) if operation == "apply" else engine.remove("kata"))
    except Killed:
        return False
    return True
