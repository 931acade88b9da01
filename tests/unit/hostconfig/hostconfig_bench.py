"""A host below a temporary directory, with a containerd that reads its real file there."""

from __future__ import annotations

import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from reconciler.api.noderuntime import Handler, RevisionData
from reconciler.cri.api import Code, Container, CriError, Sandbox, Status, Version
from reconciler.hostconfig import HostConfig, Timing
from reconciler.hostconfig.causes import Outside, nothing_outside
from reconciler.systemd.api import SystemdError, UnitState
from tests.unit.systemd.units import RUNNING

CRI = "io.containerd.grpc.v1.cri"
MAIN = b"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "reg.example/pause:9.9"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
KATA = RevisionData(handlers=(Handler(name="kata-qemu", runtime_type="io.containerd.kata-qemu.v2"),))


class Killed(BaseException):
    """The process ends here: nothing that handles errors may see it."""


class Machine:
    """systemd and containerd's CRI of one host, as far as the engine asks; time is the machine's own."""

    def __init__(self, root: Path) -> None:
        self.root, self.time = root, 100.0
        self.starts, self.invocation, self.started = 0, 1, 10.0
        self.active, self.serves = "active", True
        self.handlers: tuple[str, ...] = ()
        self.result = "success"
        self.timers: dict[str, tuple[float, tuple[str, ...]]] = {}
        self.rejects: Callable[[set[str]], str] = lambda handlers: ""
        self.before_start: Callable[[], Awaitable[object]] | None = None
        self.boot()
        self.starts = 0

    @property
    def config(self) -> Path:
        return self.root / "etc/containerd/config.toml"

    def boot(self) -> None:
        """Start containerd on what lies on disk; `rejects` says how it dislikes a set of handlers."""
        self.starts += 1
        self.invocation += 1
        self.time += 0.2
        text = self.config.read_text() if self.config.exists() else ""
        plugins = tomllib.loads(text).get("plugins", {})
        found = set(plugins.get(CRI, {}).get("containerd", {}).get("runtimes", {})) or {"runc"}
        fault = self.rejects(found)
        self.active = "failed" if fault == "exits" else "active"
        self.result = "exit-code" if fault == "exits" else "success"
        self.serves = fault == ""
        self.handlers = tuple(sorted(found))
        self.started = self.time

    # Clock

    @staticmethod
    def wall(moment: float) -> float:
        """Seconds since 1970 at a moment of the machine's own time."""
        return 1_800_000_000.0 + moment

    def monotonic(self) -> float:
        self.time += 0.001
        return self.time

    # Systemd

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        self.time += 0.01
        return replace(
            RUNNING,
            active_state=self.active,
            sub_state="running" if self.active == "active" else "failed",
            result=self.result,
            main_pid=1000 + self.invocation,
            invocation_id=f"{self.invocation:032x}",
            active_enter_monotonic=self.started,
        )

    async def restart(self, name: str, *, timeout: float) -> str:
        if self.before_start is not None:
            await self.before_start()
        self.boot()
        return "done" if self.active == "active" else "failed"

    async def start(self, name: str, *, timeout: float) -> str:
        return await self.restart(name, timeout=timeout)

    async def reset_failed(self, name: str, *, timeout: float = 5) -> None:
        return None

    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        self.timers[name] = (after, argv)

    async def disarm(self, name: str) -> None:
        self.timers.pop(name, None)

    @property
    def armed(self) -> tuple[str, ...] | None:
        """What the switch runs at last; None while it is disarmed."""
        return next((argv for _, argv in reversed(self.timers.values())), None)

    async def system_state(self, *, timeout: float = 5) -> str:
        return "running"

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        raise SystemdError("Unused", name)

    # Cri (and the close of both)

    def _answer(self) -> None:
        if self.active != "active":
            raise CriError(Code.UNAVAILABLE, "connection refused", connection=True)
        if not self.serves:
            raise CriError(Code.UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService", connection=False)

    async def version(self, *, timeout: float) -> Version:
        self._answer()
        return Version("containerd", "1.6.20")

    async def status(self, *, timeout: float) -> Status:
        self._answer()
        return Status(True, True, handlers=self.handlers, default_runtime="runc")

    async def sandboxes(self, *, timeout: float) -> list[Sandbox]:
        self._answer()
        return [Sandbox("s1", "web", "default", "u1", ready=True)]

    async def containers(self, *, timeout: float) -> list[Container]:
        return []


class HostSystemd(Machine):
    async def close(self) -> None:
        return None


class HostCri:
    """The CRI half of a machine: its `close` is not a coroutine."""

    def __init__(self, machine: Machine) -> None:
        self.version, self.status = machine.version, machine.status
        self.sandboxes, self.containers = machine.sandboxes, machine.containers

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        return None

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        return None

    def close(self) -> None:
        return None


class Steps:
    """Counts the steps of the engine and kills it at one of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.kill_at: int | None = None

    def __call__(self, step: str) -> None:
        if self.kill_at == len(self.seen):
            self.kill_at = None
            raise Killed(step)
        self.seen.append(step)


class Bench:
    """One host and a way to make an engine for it, as each new process would."""

    def __init__(self, root: Path) -> None:
        (root / "etc/containerd").mkdir(parents=True)
        (root / "etc/containerd/config.toml").write_bytes(MAIN)
        self.root, self.machine, self.steps = root, HostSystemd(root), Steps()
        self.boot_id = "boot-1"

    @property
    def config(self) -> Path:
        return self.machine.config

    def engine(self, *, online: bool = True, outside: Outside = nothing_outside) -> HostConfig:
        clock = _Clock(self.machine)
        timing = Timing(lock_wait=0.0, restart=1.0, verify=0.5, poll=0.0)
        systemd = self.machine if online else None
        cri = HostCri(self.machine) if online else None
        return HostConfig(
            self.root,
            "",
            "1.6.20",
            systemd=systemd,
            cri=cri,
            clock=clock,
            timing=timing,
            boot_id=lambda: self.boot_id,
            outside=outside,
            trace=self.steps,
        )

    def leftovers(self) -> list[str]:
        """Files that are neither the configuration nor the journal, its lock, and what is kept as long as it is."""
        state = self.root / "var/lib/runtime-reconciler"
        files = [path for top in (self.root / "etc", state) for path in top.rglob("*") if path.is_file()]
        expected = [self.config, state / "journal.json", state / "lock"]
        expected += [state / "last-good.json"] if self.engine().journal() else []
        return [str(path) for path in files if path not in expected]


class _Clock:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def monotonic(self) -> float:
        return self._machine.monotonic()

    def now(self) -> datetime:
        """Of the guard's memory of an hour; a change needs no wall clock."""
        return datetime.fromtimestamp(self._machine.wall(self._machine.time), UTC)
