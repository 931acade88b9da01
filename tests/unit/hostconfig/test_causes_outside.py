"""What keeps containerd from serving besides its configuration is tried out, and named for a person."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hostconfig_bench import KATA, MAIN, Bench

from reconciler.hostconfig import Code, HostRoot, Verdict, causes, proof
from reconciler.hostconfig.causes import HostCauses, Outside

STATE = "run/containerd"
TASKS = f"{STATE}/io.containerd.runtime.v2.task/k8s.io"


class Inotify:
    """Of a host that has `left` instances to give."""

    left = 8

    def __enter__(self) -> Inotify:
        if Inotify.left == 0:
            raise OSError(errno.EMFILE, "Too many open files")
        Inotify.left -= 1
        return self

    def __exit__(self, *_: object) -> None:
        Inotify.left += 1


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostRoot]:
    module = ModuleType("asyncinotify")
    module.Inotify = Inotify  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "asyncinotify", module)
    monkeypatch.setattr(Inotify, "left", 8)
    monkeypatch.setattr(causes, "ANSWER", 0.2)
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path may have 104 bytes
        limit = Path(folder, "proc/sys/fs/inotify/max_user_instances")
        limit.parent.mkdir(parents=True)
        limit.write_text("128\n")
        yield HostRoot(Path(folder))


class Shims:
    """Shims on unix sockets; one that `answers` says an error to what it does not know, another one nothing."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host
        self._servers: list[asyncio.Server] = []
        self._held: list[asyncio.StreamWriter] = []

    async def start(self, name: str, *, answers: bool, bootstrap: bool = False) -> None:
        """The shim of pod shop/`name`; 2.x writes its address as `bootstrap`."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._held.append(writer)
            if answers:
                assert (await reader.read(100))[:4] == b"\0\0\0\x26"
                writer.write(b"\0\0\0\0\0\0\0\1\2\0")

        folder = self._host.root / TASKS / name
        folder.mkdir(parents=True)
        address = f"unix:///{name}.s"
        if bootstrap:
            (folder / "bootstrap.json").write_text(json.dumps({"address": address, "protocol": "ttrpc"}))
        else:
            (folder / "address").write_text(address)
        annotations = {"io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-name": name}
        (folder / "config.json").write_text(json.dumps({"annotations": annotations}))
        self._servers.append(await asyncio.start_unix_server(serve, str(self._host.root / f"{name}.s")))

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._held:
            writer.close()
            await writer.wait_closed()


@pytest.fixture
async def shims(host: HostRoot) -> AsyncIterator[Shims]:
    made = Shims(host)
    yield made
    await made.stop()


async def asked(host: HostRoot) -> tuple[str, ...]:
    return await HostCauses(host, f"/{STATE}")()


async def test_a_healthy_host_has_none(host: HostRoot, shims: Shims) -> None:
    await shims.start("web", answers=True)
    await shims.start("db", answers=True, bootstrap=True)
    (host.root / TASKS / "dead").mkdir()
    (host.root / TASKS / "dead/address").write_text("unix:///nobody.s")
    assert await asked(host) == ()


@pytest.mark.parametrize("bootstrap", [False, True])
async def test_a_shim_that_does_not_answer_is_named_by_its_pod(host: HostRoot, shims: Shims, bootstrap: bool) -> None:
    await shims.start("web", answers=False, bootstrap=bootstrap)
    assert await asked(host) == ("no answer from the shim of pod shop/web",)


async def test_of_many_hung_shims_three_are_named(host: HostRoot, shims: Shims) -> None:
    for number in range(5):
        await shims.start(f"web-{number}", answers=False)
    assert await asked(host) == (
        "no answer from the shim of pod shop/web-0, pod shop/web-1, pod shop/web-2 and 2 more",
    )


async def test_too_few_inotify_instances_are_told_with_their_limit(
    host: HostRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inotify, "left", 3)
    assert await asked(host) == ("no inotify instance is left: raise fs.inotify.max_user_instances, now 128",)
    assert Inotify.left == 3


NONE_LEFT = "no inotify instance is left"
HUNG = "no answer from the shim of pod shop/web"


async def none_left() -> tuple[str, ...]:
    return (NONE_LEFT,)


def once_restarted(bench: Bench, cause: str) -> Outside:
    """A cause that comes up while the change is under way."""

    async def outside() -> tuple[str, ...]:
        return (cause,) if bench.machine.starts else ()

    return outside


@pytest.mark.parametrize("operation", ["apply", "remove"])
async def test_a_daemon_that_serves_is_not_stopped_when_it_could_not_start_again(bench: Bench, operation: str) -> None:
    if operation == "remove":
        await bench.engine().apply("kata", "uid-1", KATA)
    before, starts = bench.config.read_bytes(), bench.machine.starts
    engine = bench.engine(outside=none_left)
    outcome = await (engine.apply("kata", "uid-1", KATA) if operation == "apply" else engine.remove("kata"))
    assert (outcome.verdict, outcome.reason, outcome.restarted) == (Verdict.REFUSED, Code.BUSY, False)
    assert outcome.message == f"containerd would not come back in time from a restart: {NONE_LEFT}"
    assert (bench.config.read_bytes(), bench.machine.starts) == (before, starts)
    assert bench.leftovers() == []


async def test_a_removal_from_a_daemon_that_does_not_serve_has_nothing_to_lose(bench: Bench) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    bench.machine.rejects = lambda handlers: "no CRI" if "kata-qemu" in handlers else ""
    bench.machine.boot()
    outcome = await bench.engine(outside=none_left).remove("kata")
    assert outcome.verdict is Verdict.CHANGED
    assert bench.config.read_bytes() == MAIN


async def test_nothing_to_change_needs_no_restart_and_is_not_refused(bench: Bench) -> None:
    await bench.engine().apply("kata", "uid-1", KATA)
    outcome = await bench.engine(outside=none_left).apply("kata", "uid-1", KATA)
    assert outcome.verdict is Verdict.UNCHANGED


async def test_a_cause_outside_is_part_of_why_a_change_was_undone(bench: Bench) -> None:
    bench.machine.rejects = lambda handlers: "no CRI" if "kata-qemu" in handlers else ""
    outcome = await bench.engine(outside=once_restarted(bench, NONE_LEFT)).apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.reason, outcome.undone) == (Verdict.BROKEN, Code.VERIFY_FAILED, True)
    assert outcome.message.startswith("no inotify instance is left; containerd runs without its CRI plugin")


async def test_the_old_configuration_that_fails_in_the_same_way_is_told_once(bench: Bench) -> None:
    bench.machine.rejects = lambda handlers: "no CRI"
    outcome = await bench.engine(outside=once_restarted(bench, NONE_LEFT)).apply("kata", "uid-1", KATA)
    assert outcome.message == (
        "the change was not the cause, the old configuration does not serve either: no inotify instance is left;"
        " containerd runs without its CRI plugin: unknown service runtime.v1.RuntimeService"
    )
    assert bench.machine.starts == 2
    assert bench.config.read_bytes() == MAIN


async def test_what_made_a_start_slow_is_told_though_all_is_well(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SLOW", 0.0)
    restarting, asked_again = asyncio.Event(), asyncio.Event()

    async def hung() -> tuple[str, ...]:
        if not restarting.is_set():
            return ()
        asked_again.set()
        return (HUNG,)

    async def slow() -> None:
        restarting.set()
        await asked_again.wait()

    bench.machine.before_start = slow
    outcome = await bench.engine(outside=hung).apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.message) == (Verdict.CHANGED, HUNG)


async def test_a_start_at_once_is_not_looked_into(bench: Bench) -> None:
    asked: list[int] = []

    async def outside() -> tuple[str, ...]:
        asked.append(bench.machine.starts)
        return ()

    outcome = await bench.engine(outside=outside).apply("kata", "uid-1", KATA)
    assert (outcome.verdict, outcome.message) == (Verdict.CHANGED, "")
    assert asked == [0]
