"""Sandboxes and containers of one node, and CRI on top of them.

They live in shims: a restart of the daemon does not touch them, but while it is down nobody can ask
for them, start them or stop them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.cri.api import Code, Container, ContainerState, CriError, Sandbox, Status, Version
from reconciler.sim import payload
from reconciler.sim.containerd import Daemon, Phase

CALL_SECONDS = 0.002


@dataclass
class Process:
    """One container and the process in it."""

    id: str
    name: str
    sandbox_id: str
    pod_uid: str
    task: asyncio.Task[None] | None = None
    behaviour: payload.Behaviour = field(default_factory=payload.Behaviour)
    state: ContainerState = ContainerState.CREATED
    exit_code: int = 0
    started: datetime | None = None
    finished: datetime | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Runtime:
    """What the shims of one node hold. `exec` runs a payload on the node."""

    def __init__(self, daemon: Daemon, *, host: payload.Host, clock: Clock, rng: random.Random) -> None:
        self.daemon = daemon
        self.sandboxes: dict[str, Sandbox] = {}
        self.processes: dict[str, Process] = {}
        self.twists: list[Callable[[payload.Behaviour], payload.Behaviour]] = []
        """Each befalls one container of a phase pod, in the order in which they are started."""
        self.lived: list[Callable[[Process], None]] = []
        """Told of each process when it has started and when it has ended."""
        self._host = host
        self._clock = clock
        self._rng = rng

    def running(self, uid: str) -> list[Process]:
        """Processes of a pod that have not ended: the truth, whatever CRI says."""
        return [p for p in self.processes.values() if p.pod_uid == uid and p.state is not ContainerState.EXITED]

    async def create_sandbox(self, sandbox: Sandbox) -> str:
        """Raises CriError: among others for a handler that is not served."""
        await self.call(10.0)
        handler = sandbox.handler or self.daemon.loaded.default_runtime
        if handler not in self.daemon.loaded.handlers:
            message = f'failed to get sandbox runtime: no runtime for "{handler}" is configured'
            raise CriError(Code.UNKNOWN, message, connection=False)
        identity = f"{self._rng.getrandbits(256):064x}"
        self.sandboxes[identity] = replace(sandbox, id=identity, ready=True)
        return identity

    async def run_container(self, sandbox_id: str, name: str, behaviour: payload.Behaviour) -> Process:
        """Create and start. Raises CriError."""
        await self.call(10.0)
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.ready:
            raise CriError(Code.NOT_FOUND, f"sandbox {sandbox_id} is not running", connection=False)
        if self.twists and sandbox.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE:
            behaviour = self.twists.pop(0)(behaviour)
        identity = f"{self._rng.getrandbits(256):064x}"
        process = Process(identity, name, sandbox_id, sandbox.pod_uid, behaviour=behaviour)
        process.state = ContainerState.RUNNING
        process.started = self._clock.now()
        self.processes[identity] = process
        self._tell(process)
        process.task = asyncio.ensure_future(self._live(process))
        return process

    def kill(self, process: Process, code: int = payload.KILLED) -> None:
        """SIGKILL."""
        if process.state is ContainerState.EXITED:
            return
        self._exited(process, code)
        if process.task is not None:
            process.task.cancel()

    def remove_pod(self, uid: str) -> None:
        """What kubelet's garbage collection does with a pod that is gone."""
        for key in [k for k, p in self.processes.items() if p.pod_uid == uid and p.state is ContainerState.EXITED]:
            del self.processes[key]
        for key in [k for k, s in self.sandboxes.items() if s.pod_uid == uid and not s.ready]:
            del self.sandboxes[key]

    def power_off(self) -> None:
        """Every process is gone; containerd's store on disk still knows what was there."""
        for process in self.processes.values():
            self.kill(process, 255)
        self.sandboxes = {key: replace(s, ready=False) for key, s in self.sandboxes.items()}

    async def call(self, timeout: float) -> None:
        """Raises CriError, as the client of `reconciler.cri` words it, when the daemon cannot answer."""
        if self.daemon.hang:
            await asyncio.sleep(timeout)
            raise CriError(Code.DEADLINE_EXCEEDED, "context deadline exceeded", connection=False)
        await asyncio.sleep(CALL_SECONDS)
        match self.daemon.phase:
            case Phase.DOWN:
                why = "Connection refused" if self.daemon.socket_left else "No such file or directory"
                raise CriError(Code.UNAVAILABLE, f"{names.CONTAINERD_SOCKET}: {why}", connection=True)
            case Phase.STARTING:
                raise CriError(Code.UNKNOWN, "server is not initialized yet", connection=False)
            case Phase.WITHOUT_CRI:
                raise CriError(Code.UNIMPLEMENTED, self.daemon.loaded.cri_error, connection=False)

    async def hook(self, behaviour: payload.Behaviour) -> None:
        """Run a preStop hook in a container; a hook that restarts containerd breaks its own connection."""
        if behaviour.restarts:
            await self._host.restart_containerd("hook")
            raise CriError(Code.UNAVAILABLE, "error reading from server: EOF", connection=True)
        await payload.run(behaviour, self._host)

    async def unless_down(self, wait: Awaitable[object], timeout: float) -> None:
        """Wait for something that the daemon does; EOF when it dies meanwhile."""
        waiting = asyncio.ensure_future(wait)
        down = asyncio.ensure_future(self.daemon.down.wait())
        try:
            done, _ = await asyncio.wait({waiting, down}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in (waiting, down):
                future.cancel()
        if waiting in done:
            return
        if down in done:
            raise CriError(Code.UNAVAILABLE, "error reading from server: EOF", connection=True)
        raise CriError(Code.DEADLINE_EXCEEDED, "context deadline exceeded", connection=False)

    async def _live(self, process: Process) -> None:
        code = await payload.run(process.behaviour, self._host)
        if process.state is not ContainerState.EXITED:
            self._exited(process, code)

    def _exited(self, process: Process, code: int) -> None:
        process.state = ContainerState.EXITED
        process.exit_code = code
        process.finished = self._clock.now()
        process.ended.set()
        self._tell(process)

    def _tell(self, process: Process) -> None:
        for told in self.lived:
            told(process)


class SimCri:
    """The `Cri` protocol on a simulated node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def version(self, *, timeout: float) -> Version:
        await self._runtime.call(timeout)
        return Version("containerd", self._runtime.daemon.version)

    async def status(self, *, timeout: float) -> Status:
        await self._runtime.call(timeout)
        loaded = self._runtime.daemon.loaded
        return Status(True, True, handlers=loaded.handlers, default_runtime=loaded.default_runtime)

    async def sandboxes(self, *, timeout: float) -> list[Sandbox]:
        await self._runtime.call(timeout)
        return list(self._runtime.sandboxes.values())

    async def containers(self, *, timeout: float) -> list[Container]:
        await self._runtime.call(timeout)
        labels: Mapping[str, dict[str, str]] = {s.id: s.labels for s in self._runtime.sandboxes.values()}
        return [
            Container(p.id, p.name, p.sandbox_id, p.pod_uid, p.state, labels.get(p.sandbox_id, {}))
            for p in self._runtime.processes.values()
        ]

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        await self._runtime.call(timeout)
        process = self._runtime.processes.get(container_id)
        if process is None or process.state is ContainerState.EXITED:
            return
        if not process.behaviour.ignores_term and grace > 0:
            self._runtime.kill(process, payload.TERMINATED)
            return
        if grace > 0:
            await self._runtime.unless_down(_ended(process, grace), timeout)
        self._runtime.kill(process)

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        await self._runtime.call(timeout)
        sandbox = self._runtime.sandboxes.get(sandbox_id)
        if sandbox is None:
            return
        for process in list(self._runtime.processes.values()):
            if process.sandbox_id == sandbox_id:
                self._runtime.kill(process)
        self._runtime.sandboxes[sandbox_id] = replace(sandbox, ready=False)

    def close(self) -> None:
        """There is no channel."""


async def _ended(process: Process, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await process.ended.wait()
    except TimeoutError:
        return
