"""A simulated containerd under a simulated systemd: one daemon, and the sandboxes that outlive it.

It reads the real files below the node's root when it starts. `Daemon` is the process and its unit;
`sim.runtime` keeps sandboxes and containers. Figures are those of Debian 12's containerd 1.6.20.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.api import names
from reconciler.sim import config

VERSION = "1.6.20"
"""Of a fresh node."""
START_SECONDS = (0.05, 0.25)
"""Least and most until READY, and the same again until CRI serves."""
RESTART_SEC = 5.0
"""Seconds: `RestartSec=` of containerd.service, after a crash."""
START_LIMIT_INTERVAL = 10.0
START_LIMIT_BURST = 5
"""systemd's defaults: a sixth start within 10 s is refused, and leaves the unit failed."""


class Phase(enum.Enum):
    """Where the daemon is."""

    DOWN = "down"
    """No process. The socket is gone after a clean end, and stays after any other."""
    STARTING = "starting"
    """The socket is there, CRI says `server is not initialized yet`."""
    WITHOUT_CRI = "without-cri"
    """Runs, but every CRI call is Unimplemented."""
    SERVING = "serving"


@dataclass(frozen=True)
class Start:
    """One start of the daemon, for the judge."""

    time: float
    """Monotonic seconds."""
    initiator: str
    """`agent`, `payload`, `hook`, `systemd`, `fault`, `boot`, `dead-man`."""
    invocation: str
    error: str
    """Why it did not come up or does not serve CRI; "" when it does."""
    outside: bool = False
    """The error comes from something that is no configuration (`Daemon.without_cri`)."""


@dataclass
class Unit:
    """What systemd says of containerd.service."""

    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    pid: int = 0
    invocation: str = ""
    entered: float = 0.0
    job: bool = False


class Daemon:
    """One containerd. `jobs` go one after the other, as systemd does them."""

    tasks: asyncio.TaskGroup
    """Of the machine since its last boot."""

    def __init__(self, root: Path, *, rng: random.Random) -> None:
        self.root = root
        self.unit = Unit()
        self.phase = Phase.DOWN
        self.loaded = config.Loaded()
        self.starts: list[Start] = []
        self.outages: list[tuple[float, float]] = []
        """Begin and end of every time that CRI did not serve."""
        self.start_seconds = START_SECONDS
        self.version = self.installed = VERSION
        """Of the process that was started last, and of the binary that the next start runs."""
        self.without_cri = ""
        """Why the CRI plugin of every process that is started does not load, whatever the configuration says."""
        self.breaks = ""
        """A handler on which this daemon exits, as one does on a plugin that its build or its kernel does not have."""
        self._hang = False
        self.down = asyncio.Event()
        """Set while there is no process."""
        self.down.set()
        self._rng = rng
        self._lock = asyncio.Lock()
        self._recent: deque[float] = deque()
        self._down_since: float | None = None
        self._listeners: list[Callable[[], None]] = []
        self.changed: list[Callable[[], None]] = []
        """As `on_change`, for those who are not of this machine: they outlive its power."""
        self.started: list[Callable[[Start], None]] = []
        """Told of each start, once it is known whether it will come up."""
        self._life = 0
        """Counts processes: what belongs to an older one is void."""

    # --- for the node, its faults and systemd ---

    async def start(self, initiator: str) -> str:
        """The job's result."""
        async with self._job():
            if self.unit.active == "active":
                return "done"
            return await self._start(initiator)

    async def restart(self, initiator: str) -> str:
        """Stop (also when the start is refused by the limit, as systemd does), then start."""
        async with self._job():
            await self._stop("success")
            return await self._start(initiator)

    async def stop(self) -> None:
        """As an admin does: inactive, with success, and nothing starts it again."""
        async with self._job():
            await self._stop("success")

    def crash(self, result: str = "signal") -> None:
        """The process dies; systemd starts it again after RestartSec."""
        if self.phase is Phase.DOWN:
            return
        self._dead("activating", "auto-restart", result)
        self.tasks.create_task(self._again(self._life))

    def reset_failed(self) -> None:
        self._recent.clear()
        if self.unit.active == "failed":
            self._set("inactive", "dead", "success")

    def power_off(self) -> None:
        """The machine loses power, and with it what lies in /run."""
        self._socket().unlink(missing_ok=True)
        self._dead("inactive", "dead", "success")
        self._recent.clear()
        self._listeners.clear()
        self._lock = asyncio.Lock()
        self.unit.job = False

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every change of the unit or of CRI; returns what stops that."""
        self._listeners.append(listener)
        return lambda: self._forget(listener)

    def _forget(self, listener: Callable[[], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    @property
    def serving(self) -> bool:
        return self.phase is Phase.SERVING and not self._hang

    @property
    def socket_left(self) -> bool:
        """Whether there is a socket, of a process that lives or of one that was killed."""
        return self._socket().exists()

    @property
    def away(self) -> float:
        """Seconds since CRI has served last; 0 while it does."""
        return 0.0 if self._down_since is None else _now() - self._down_since

    @property
    def hang(self) -> bool:
        """CRI calls get no answer at all."""
        return self._hang

    @hang.setter
    def hang(self, value: bool) -> None:
        self._hang = value
        self._tell()

    async def served(self) -> None:
        """Returns when CRI serves."""
        changed = asyncio.Event()
        stop = self.on_change(changed.set)
        try:
            while not self.serving:
                changed.clear()
                await changed.wait()
        finally:
            stop()

    # --- inside ---

    def _job(self) -> _Job:
        return _Job(self.unit, self._lock)

    async def _stop(self, result: str) -> None:
        if self.phase is not Phase.DOWN:
            self._set("deactivating", "stop-sigterm", "success")
            await asyncio.sleep(0.02)
            self._socket().unlink(missing_ok=True)
        self._dead("inactive", "dead", result)

    async def _start(self, initiator: str) -> str:
        now = _now()
        while self._recent and self._recent[0] <= now - START_LIMIT_INTERVAL:
            self._recent.popleft()
        if len(self._recent) >= START_LIMIT_BURST:
            self._dead("failed", "failed", "start-limit-hit")
            return "failed"
        self._recent.append(now)
        self._life += 1
        self.unit.pid = self._rng.randrange(1000, 1 << 22)
        self.unit.invocation = f"{self._rng.getrandbits(128):032x}"
        self._set("activating", "start", "success")
        self.loaded = await asyncio.to_thread(config.load, self.root)
        self.version = self.installed
        if self.without_cri and not self.loaded.error:
            self.loaded = replace(self.loaded, cri_error=self.loaded.cri_error or self.without_cri)
        if self.breaks and self.breaks in self.loaded.handlers:
            self.loaded = config.Loaded(error=f"exit status 1: cannot load handler {self.breaks}")
        problem = self.loaded.error or self.loaded.cri_error
        outside = problem != "" and problem == self.without_cri
        self.starts.append(Start(now, initiator, self.unit.invocation, problem, outside))
        for told in self.started:
            told(self.starts[-1])
        await asyncio.sleep(self._rng.uniform(*self.start_seconds))
        if self.loaded.error:
            self._dead("activating", "auto-restart", "exit-code")
            self.tasks.create_task(self._again(self._life))
            return "failed"
        self.down.clear()
        self.phase = Phase.STARTING
        self._socket().parent.mkdir(parents=True, exist_ok=True)
        self._socket().touch()
        self.unit.entered = _now()
        self._set("active", "running", "success")
        self.tasks.create_task(self._initialise(self._life))
        return "done"

    async def _initialise(self, life: int) -> None:
        await asyncio.sleep(self._rng.uniform(*self.start_seconds))
        if life != self._life or self.phase is not Phase.STARTING:
            return
        self.phase = Phase.WITHOUT_CRI if self.loaded.cri_error else Phase.SERVING
        if self.phase is Phase.SERVING and self._down_since is not None:
            self.outages.append((self._down_since, _now()))
            self._down_since = None
        self._tell()

    async def _again(self, life: int) -> None:
        await asyncio.sleep(RESTART_SEC)
        if life == self._life and self.unit.sub == "auto-restart":
            async with self._job():
                if self.unit.sub == "auto-restart":
                    await self._start("systemd")

    def _dead(self, active: str, sub: str, result: str) -> None:
        if self._down_since is None:
            self._down_since = _now()
        self.phase = Phase.DOWN
        self.unit.pid = 0
        self.down.set()
        self._set(active, sub, result)

    def _set(self, active: str, sub: str, result: str) -> None:
        self.unit.active, self.unit.sub, self.unit.result = active, sub, result
        self._tell()

    def _tell(self) -> None:
        for listener in (*self.changed, *self._listeners):
            listener()

    def _socket(self) -> Path:
        return self.root / names.CONTAINERD_SOCKET.lstrip("/")


class _Job:
    """One systemd job: the unit says that it is queued, and jobs wait for each other."""

    def __init__(self, unit: Unit, lock: asyncio.Lock) -> None:
        self._unit = unit
        self._lock = lock

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        self._unit.job = True

    async def __aexit__(self, *_: object) -> None:
        self._unit.job = False
        self._lock.release()


def _now() -> float:
    return asyncio.get_running_loop().time()
