"""How a process dies by SIGKILL in a program that can only cancel: nothing that it asks for is done any more.

A cancelled task may still finish or undo what it has begun; a killed process may not. So everything
that an agent reaches outside itself asks its `Life` first, and a dead one gets `Killed`: no `except Exception`
takes it for an error, and what the kernel frees of a dead process (locks, descriptors) is freed by its way out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from reconciler.cri.api import Container, Sandbox, Status, Version
from reconciler.sim.runtime import SimCri
from reconciler.sim.systemd import SimSystemd
from reconciler.systemd.api import UnitState

T = TypeVar("T")
Step = Callable[[str], Callable[[], None]]
"""Called with what a process is about to do outside itself; what it returns is called when that was done."""


class Killed(BaseException):
    """The process that asks is dead."""


def unwatched(what: str) -> Callable[[], None]:
    """The step of those whom nobody watches."""
    return lambda: None


class Life:
    """One run of one process. `step` may end it."""

    def __init__(self, step: Step = unwatched) -> None:
        self.ended = asyncio.Event()
        self._step = step

    def watch(self, step: Step) -> None:
        """From now on `step` is told."""
        self._step = step

    def check(self) -> None:
        """Raises Killed once the process is dead."""
        if self.ended.is_set():
            raise Killed

    def start(self, process: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Whatever runs in the task's context, in tasks that it begins as well, is of this life."""
        context = copy_context()
        context.run(CURRENT.set, self)
        return asyncio.get_running_loop().create_task(process, context=context)

    def begin(self, what: str) -> Callable[[], None]:
        """Before something is done outside; what it returns is called right after it. Both raise Killed."""
        self.check()
        over = self._step(what)
        self.check()

        def done() -> None:
            over()
            self.check()

        return done

    async def ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Let somebody else do `what`: they are not this process, and go on when it dies."""
        done = self.begin(what)
        CURRENT.set(None)
        try:
            answer = await call()
        finally:
            CURRENT.set(self)
        done()
        return answer


CURRENT: ContextVar[Life | None] = ContextVar("life", default=None)
"""The life of the agent or controller that runs in this context; None for everybody else."""


class MortalCri:
    """`Cri` for one life. `stopped` is called at every stop that containerd has carried out."""

    def __init__(self, inner: SimCri, life: Life, *, stopped: Callable[[], None]) -> None:
        self._inner = inner
        self._stopped = stopped
        self._life = life

    async def version(self, *, timeout: float) -> Version:
        return await self._life.ask("cri version", lambda: self._inner.version(timeout=timeout))

    async def status(self, *, timeout: float) -> Status:
        return await self._life.ask("cri status", lambda: self._inner.status(timeout=timeout))

    async def sandboxes(self, *, timeout: float) -> list[Sandbox]:
        return await self._life.ask("cri sandboxes", lambda: self._inner.sandboxes(timeout=timeout))

    async def containers(self, *, timeout: float) -> list[Container]:
        return await self._life.ask("cri containers", lambda: self._inner.containers(timeout=timeout))

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        await self._life.ask(
            "cri stop_container", lambda: self._inner.stop_container(container_id, grace=grace, timeout=timeout)
        )
        self._stopped()

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        await self._life.ask("cri stop_sandbox", lambda: self._inner.stop_sandbox(sandbox_id, timeout=timeout))
        self._stopped()

    def close(self) -> None:
        self._inner.close()


class MortalSystemd:
    """`Systemd` for one life. Timers that it armed outlive it."""

    def __init__(self, inner: SimSystemd, life: Life) -> None:
        self._inner = inner
        self._life = life

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        return await self._life.ask("systemd unit", lambda: self._inner.unit(name, timeout=timeout))

    async def restart(self, name: str, *, timeout: float) -> str:
        return await self._life.ask("systemd restart", lambda: self._inner.restart(name, timeout=timeout))

    async def start(self, name: str, *, timeout: float) -> str:
        return await self._life.ask("systemd start", lambda: self._inner.start(name, timeout=timeout))

    async def reset_failed(self, name: str, *, timeout: float = 5) -> None:
        await self._life.ask("systemd reset_failed", lambda: self._inner.reset_failed(name, timeout=timeout))

    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        await self._life.ask("systemd arm", lambda: self._inner.arm(name, after=after, argv=argv))

    async def disarm(self, name: str) -> None:
        await self._life.ask("systemd disarm", lambda: self._inner.disarm(name))

    async def system_state(self, *, timeout: float = 5) -> str:
        return await self._life.ask("systemd system_state", lambda: self._inner.system_state(timeout=timeout))

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        return await self._life.ask("systemd watch", lambda: self._inner.watch(name, changed))

    async def close(self) -> None:
        await self._inner.close()
