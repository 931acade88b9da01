"""How a process dies by SIGKILL in a program that can only cancel: nothing that it asks for is done any more.

A cancelled task may still finish or undo what it has begun; a killed process may not. So everything
that an agent reaches outside itself asks its `Life` first, and a dead one gets `Killed`: no `except Exception`
takes it for an error, and what the kernel frees of a dead process (locks, descriptors) is freed by its way out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from reconciler.cri.api import Container, Sandbox, Status, Version
from reconciler.sim.runtime import SimCri
from reconciler.sim.systemd import SimSystemd
from reconciler.systemd.api import UnitState


class Killed(BaseException):
    """The process that asks is dead."""


class Life:
    """One run of one process."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def check(self) -> None:
        """Raises Killed once the process is dead."""
        if self.ended.is_set():
            raise Killed


class MortalCri:
    """`Cri` for one life. `stopped` is called at every stop that containerd has carried out."""

    def __init__(self, inner: SimCri, life: Life, *, stopped: Callable[[], None]) -> None:
        self._inner = inner
        self._stopped = stopped
        self._life = life

    async def version(self, *, timeout: float) -> Version:
        self._life.check()
        return await self._inner.version(timeout=timeout)

    async def status(self, *, timeout: float) -> Status:
        self._life.check()
        return await self._inner.status(timeout=timeout)

    async def sandboxes(self, *, timeout: float) -> list[Sandbox]:
        self._life.check()
        return await self._inner.sandboxes(timeout=timeout)

    async def containers(self, *, timeout: float) -> list[Container]:
        self._life.check()
        return await self._inner.containers(timeout=timeout)

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        self._life.check()
        await self._inner.stop_container(container_id, grace=grace, timeout=timeout)
        self._stopped()

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        self._life.check()
        await self._inner.stop_sandbox(sandbox_id, timeout=timeout)
        self._stopped()

    def close(self) -> None:
        self._inner.close()


class MortalSystemd:
    """`Systemd` for one life. Timers that it armed outlive it."""

    def __init__(self, inner: SimSystemd, life: Life) -> None:
        self._inner = inner
        self._life = life

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        self._life.check()
        return await self._inner.unit(name, timeout=timeout)

    async def restart(self, name: str, *, timeout: float) -> str:
        self._life.check()
        result = await self._inner.restart(name, timeout=timeout)
        self._life.check()
        return result

    async def start(self, name: str, *, timeout: float) -> str:
        self._life.check()
        result = await self._inner.start(name, timeout=timeout)
        self._life.check()
        return result

    async def reset_failed(self, name: str, *, timeout: float = 5) -> None:
        self._life.check()
        await self._inner.reset_failed(name, timeout=timeout)

    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        self._life.check()
        await self._inner.arm(name, after=after, argv=argv)

    async def disarm(self, name: str) -> None:
        self._life.check()
        await self._inner.disarm(name)

    async def system_state(self, *, timeout: float = 5) -> str:
        self._life.check()
        return await self._inner.system_state(timeout=timeout)

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        self._life.check()
        return await self._inner.watch(name, changed)

    async def close(self) -> None:
        await self._inner.close()
