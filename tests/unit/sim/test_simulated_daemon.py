"""The simulated containerd under its simulated systemd: restarts, the start limit, CRI's errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from reconciler.cri.api import Code, CriError, Sandbox
from reconciler.sim import clock, payload
from reconciler.sim.containerd import Daemon, Phase
from reconciler.sim.runtime import Runtime, SimCri

MAIN = "etc/containerd/config.toml"


class Host:
    """A node on which payloads only count."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def restart_containerd(self, initiator: str) -> None: ...

    async def restart_kubelet(self) -> None: ...

    async def label(self, key: str, value: str) -> None: ...


def drive(root: Path, main: Callable[[Daemon, Runtime], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            daemon = Daemon(root, rng=random.Random(1))
            daemon.tasks = tasks
            runtime = Runtime(daemon, host=Host(root), clock=clock.VirtualClock(), rng=random.Random(2))
            await main(daemon, runtime)

    clock.run(run())


def broken(root: Path) -> None:
    (root / MAIN).parent.mkdir(parents=True, exist_ok=True)
    (root / MAIN).write_text("imports = [ , ]")


def test_cri_serves_soon_after_a_start_and_the_socket_is_there(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        assert await daemon.start("boot") == "done"
        with pytest.raises(CriError, match="server is not initialized yet"):
            await SimCri(runtime).version(timeout=1)
        await daemon.served()
        assert (await SimCri(runtime).version(timeout=1)).runtime_version == "1.6.20"
        assert (tmp_path / "run/containerd/containerd.sock").exists()

    drive(tmp_path, main)


def test_a_stopped_daemon_is_a_failed_connection(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        await daemon.start("boot")
        await daemon.stop()
        with pytest.raises(CriError) as caught:
            await SimCri(runtime).version(timeout=1)
        assert (caught.value.code, caught.value.connection) == (Code.UNAVAILABLE, True)
        assert (daemon.unit.active, daemon.unit.result) == ("inactive", "success")

    drive(tmp_path, main)


def test_each_start_is_another_invocation(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        await daemon.start("boot")
        await daemon.restart("agent")
        first, second = daemon.starts
        assert first.invocation != second.invocation
        assert [first.initiator, second.initiator] == ["boot", "agent"]

    drive(tmp_path, main)


def test_the_sixth_start_within_ten_seconds_is_refused_and_the_daemon_is_down(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        results = [await daemon.restart("payload") for _ in range(6)]
        assert results == ["done"] * 5 + ["failed"]
        assert (daemon.unit.active, daemon.unit.result) == ("failed", "start-limit-hit")
        daemon.reset_failed()
        assert await daemon.start("agent") == "done"

    drive(tmp_path, main)


def test_a_configuration_that_does_not_load_is_tried_again_every_five_seconds(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        broken(tmp_path)
        assert await daemon.start("boot") == "failed"
        (tmp_path / MAIN).unlink()
        await daemon.served()
        assert [start.initiator for start in daemon.starts] == ["boot", "systemd"]
        assert 5.0 < asyncio.get_running_loop().time() < 6.0

    drive(tmp_path, main)


def test_a_configuration_without_cri_answers_unimplemented(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        (tmp_path / MAIN).parent.mkdir(parents=True)
        (tmp_path / MAIN).write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        assert await daemon.start("boot") == "done"
        await asyncio.sleep(1)
        with pytest.raises(CriError) as caught:
            await SimCri(runtime).version(timeout=1)
        assert (caught.value.code, daemon.phase) == (Code.UNIMPLEMENTED, Phase.WITHOUT_CRI)

    drive(tmp_path, main)


def test_containers_outlive_a_restart_and_cannot_be_stopped_meanwhile(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        await daemon.start("boot")
        await daemon.served()
        box = await runtime.create_sandbox(Sandbox("", "p", "ns", "uid", True))
        process = await runtime.run_container(box, "main", payload.Behaviour(hang=True))
        await daemon.stop()
        with pytest.raises(CriError):
            await SimCri(runtime).stop_sandbox(box, timeout=1)
        assert runtime.running("uid") == [process]
        await daemon.start("agent")
        await daemon.served()
        await SimCri(runtime).stop_sandbox(box, timeout=1)
        assert runtime.running("uid") == []

    drive(tmp_path, main)


def test_a_handler_that_is_not_served_is_refused(tmp_path: Path) -> None:
    async def main(daemon: Daemon, runtime: Runtime) -> None:
        await daemon.start("boot")
        await daemon.served()
        with pytest.raises(CriError, match='no runtime for "kata" is configured'):
            await runtime.create_sandbox(Sandbox("", "p", "ns", "uid", True, "kata"))

    drive(tmp_path, main)
