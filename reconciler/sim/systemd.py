"""The `Systemd` protocol on a simulated node: containerd.service and transient timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from reconciler.sim.containerd import Daemon
from reconciler.systemd.api import SystemdError, UnitState

UNIT = "containerd.service"


class SimSystemd:
    """`fire(argv)` is what a timer runs when nobody disarms it. `initiator` names who asks, for the judge."""

    def __init__(
        self,
        daemon: Daemon,
        *,
        tasks: asyncio.TaskGroup,
        fire: Callable[[tuple[str, ...]], Awaitable[None]],
        initiator: str = "agent",
    ) -> None:
        self._daemon = daemon
        self._tasks = tasks
        self._fire = fire
        self._initiator = initiator
        self._timers: dict[str, asyncio.Task[None]] = {}

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        if name != UNIT:
            raise SystemdError("org.freedesktop.systemd1.NoSuchUnit", f"Unit {name} not loaded.")
        unit = self._daemon.unit
        return UnitState(
            load_state="loaded",
            active_state=unit.active,
            sub_state=unit.sub,
            result=unit.result,
            restart="always",
            main_pid=unit.pid,
            invocation_id=unit.invocation,
            active_enter_monotonic=unit.entered,
            job=unit.job,
            unit_file_state="enabled",
            fragment_path="/lib/systemd/system/containerd.service",
            exec_start=("/usr/bin/containerd",),
        )

    async def restart(self, name: str, *, timeout: float) -> str:
        return await self._wait(self._daemon.restart(self._initiator), timeout)

    async def start(self, name: str, *, timeout: float) -> str:
        return await self._wait(self._daemon.start(self._initiator), timeout)

    async def reset_failed(self, name: str, *, timeout: float = 5) -> None:
        self._daemon.reset_failed()

    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        await self.disarm(name)
        self._timers[name] = self._tasks.create_task(self._timer(name, after, argv))

    async def disarm(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    @property
    def armed(self) -> list[str]:
        """Names of the timers that have not fired."""
        return sorted(self._timers)

    async def system_state(self, *, timeout: float = 5) -> str:
        return "running"

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        stop = self._daemon.on_change(changed)

        async def stopped() -> None:
            stop()

        return stopped

    async def close(self) -> None:
        """There is no connection; timers belong to the host and stay."""

    async def _timer(self, name: str, after: float, argv: tuple[str, ...]) -> None:
        await asyncio.sleep(after)
        self._timers.pop(name, None)
        await self._fire(argv)

    async def _wait(self, job: Awaitable[str], timeout: float) -> str:
        """A job goes on when its caller is cancelled or gives up, as systemd's do."""
        running = self._tasks.create_task(_result(job))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(running)
        except TimeoutError as error:
            raise SystemdError("Timeout", f"no result of the job within {timeout} s") from error


async def _result(job: Awaitable[str]) -> str:
    return await job
