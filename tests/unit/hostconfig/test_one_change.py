"""What one change does to the host, and what keeps it from beginning."""

from __future__ import annotations

import asyncio
import json

import pytest
from hostconfig_bench import KATA, MAIN, Bench, Killed

from reconciler.api.noderuntime import Handler, RevisionData, WrittenBy
from reconciler.hostconfig import Code, HostConfig, Verdict

BLOCK = b"""# runtime-reconciler: begin kata
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-qemu]
  runtime_type = "io.containerd.kata-qemu.v2"
# runtime-reconciler: end kata
"""


async def test_apply_appends_one_block_and_restarts_once(bench: Bench) -> None:
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert outcome.verdict is Verdict.CHANGED
    assert bench.config.read_bytes() == MAIN + BLOCK
    assert outcome.restarted and bench.machine.starts == 1
    assert outcome.handlers == ("kata-qemu", "runc")
    assert [change.path for change in outcome.files] == ["/etc/containerd/config.toml"]


async def test_a_second_apply_changes_nothing(bench: Bench) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert outcome.verdict is Verdict.UNCHANGED
    assert bench.machine.starts == 1


async def test_removal_leaves_every_byte_as_it_was(bench: Bench) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    outcome = await bench.engine().remove("kata")
    assert outcome.verdict is Verdict.CHANGED
    assert bench.config.read_bytes() == MAIN
    assert bench.machine.starts == 2


async def test_a_file_that_was_not_there_goes_again(bench: Bench) -> None:
    bench.config.unlink()
    bench.machine.boot()
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert outcome.handlers == ("kata-qemu", "runc")
    await bench.engine().remove("kata")
    assert not bench.config.exists()


async def test_a_block_whose_comments_are_gone_is_removed_by_its_headers(bench: Bench) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    kept = [line for line in bench.config.read_bytes().splitlines(True) if not line.startswith(b"# runtime-rec")]
    bench.config.write_bytes(b"".join(kept))
    outcome = await bench.engine().remove("kata")
    assert outcome.verdict is Verdict.CHANGED
    assert bench.config.read_bytes() == MAIN


@pytest.mark.parametrize("fault", ["exits", "no CRI"])
async def test_a_configuration_that_does_not_serve_is_undone(bench: Bench, fault: str) -> None:
    bench.machine.rejects = lambda handlers: fault if "kata-qemu" in handlers else ""
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason, outcome.undone) == (Verdict.BROKEN, Code.VERIFY_FAILED, True)
    assert bench.config.read_bytes() == MAIN
    assert bench.machine.handlers == ("runc",)
    assert bench.machine.starts == 2
    assert bench.engine().journal() == {}


async def test_when_the_old_configuration_fails_too_it_is_not_blamed(bench: Bench) -> None:
    bench.machine.rejects = lambda handlers: "exits" if "kata-qemu" in handlers else "no CRI"
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert outcome.message == (
        "the change was not the cause, the old configuration does not serve either: containerd runs without its CRI"
        " plugin: unknown service runtime.v1.RuntimeService; with the change:"
        " systemd could not start containerd.service"
    )
    assert bench.machine.starts == 2


async def test_a_fence_that_raises_leaves_no_trace(bench: Bench) -> None:
    async def fence() -> None:
        raise PermissionError("not ours any more")

    with pytest.raises(PermissionError):
        await bench.engine().apply("kata", "uid-1", KATA, fence=fence)
    assert bench.config.read_bytes() == MAIN
    assert bench.engine().journal() == {}
    assert bench.machine.starts == 0


async def test_an_unread_edit_of_somebody_else_is_not_brought_to_life(bench: Bench) -> None:
    vendor = b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.vendor]\nruntime_type = "io.x.v1"\n'
    bench.config.write_bytes(MAIN + vendor)
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.PENDING_FOREIGN_CHANGE)
    assert bench.config.read_bytes() == MAIN + vendor


async def test_a_handler_of_somebody_else_is_left_alone(bench: Bench) -> None:
    data = RevisionData(handlers=(Handler(name="runc"),))
    outcome = await bench.engine().apply("other", "uid-2", data)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.HANDLER_CONFLICT)


async def test_broken_files_are_refused_with_the_line(bench: Bench) -> None:
    bench.config.write_bytes(b"version = 2\nimports = [ , ]\n")
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.INVALID_TOML)
    assert outcome.findings[0].line == 2 and outcome.findings[0].repairable


async def test_an_edit_during_our_work_wins(bench: Bench) -> None:
    engine = bench.engine(online=False)

    async def fence() -> None:
        bench.config.write_bytes(MAIN + b"# an admin\n")

    outcome = await engine.apply("kata", "uid-1", KATA, fence=fence)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.FOREIGN_CHANGE)
    assert bench.config.read_bytes() == MAIN + b"# an admin\n"
    assert engine.journal() == {}


async def test_tables_that_a_payload_wrote_stay_when_its_runtime_goes(bench: Bench) -> None:
    vendor = b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.vendor]\nruntime_type = "io.x.v1"\n'
    bench.config.write_bytes(MAIN + vendor)
    data = RevisionData(handlers=(Handler(name="vendor", written_by=WrittenBy.PAYLOAD),))
    outcome = await bench.engine().apply("vendor", "uid-1", data)
    assert (outcome.verdict, bench.machine.handlers) == (Verdict.CHANGED, ("runc", "vendor"))
    assert (await bench.engine().remove("vendor")).verdict is Verdict.UNCHANGED
    assert (bench.config.read_bytes(), bench.machine.starts) == (MAIN + vendor, 1)


async def test_a_cancelled_change_is_finished_first(bench: Bench) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def fence() -> None:
        begun.set()
        await go_on.wait()

    task = asyncio.create_task(bench.engine().apply("kata", "uid-1", KATA, fence=fence))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.machine.handlers == ("kata-qemu", "runc")
    assert bench.engine().journal() == {"kata": "uid-1"}


async def test_two_at_once_are_one_after_the_other(bench: Bench) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def fence() -> None:
        begun.set()
        await go_on.wait()

    first = asyncio.create_task(bench.engine().apply("kata", "uid-1", KATA, fence=fence))
    await begun.wait()
    second = await bench.engine().remove("kata")
    go_on.set()
    assert (second.verdict, second.reason) == (Verdict.REFUSED, Code.BUSY)
    assert (await first).verdict is Verdict.CHANGED


async def test_containerd_stopped_by_a_person_is_not_started(bench: Bench) -> None:
    bench.machine.active = "inactive"
    outcome = await bench.engine().apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.BUSY)
    assert bench.machine.starts == 0


async def test_the_boot_is_the_hosts_and_not_the_containers(bench: Bench) -> None:
    """A node that is itself a container shows an id of its own below its root, and kubelet reports that one."""
    folder = bench.root / "proc/sys/kernel/random"
    folder.mkdir(parents=True)
    (folder / "boot_id").write_text("boot-of-the-host\n")
    bench.steps.kill_at = 4
    engine = HostConfig(bench.root, "", "1.6.20", clock=bench.machine, trace=bench.steps)  # type: ignore[arg-type]
    with pytest.raises(Killed):
        await engine.apply("kata", "uid-1", KATA)
    journal = json.loads((bench.root / "var/lib/runtime-reconciler/journal.json").read_text())
    assert journal["pending"]["boot"] == "boot-of-the-host"
