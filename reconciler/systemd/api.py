"""What the project needs of systemd, as types; the D-Bus client and the simulated node both offer it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol


class SystemdError(Exception):
    """A call to systemd that failed; `name` is the D-Bus error name, or `Timeout`, `Disconnected`, `JobFailed`."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


@dataclass(frozen=True)
class UnitState:
    """Properties of a service unit, read in one go."""

    load_state: str
    active_state: str  # active, activating, deactivating, inactive, failed
    sub_state: str
    result: str  # success, exit-code, signal, start-limit-hit, …
    restart: str  # Restart=
    main_pid: int
    invocation_id: str  # hex, "" when none
    active_enter_monotonic: float  # seconds, CLOCK_MONOTONIC; start of the running process
    job: bool  # a job is queued
    unit_file_state: str  # enabled, masked, …
    fragment_path: str = ""
    exec_start: tuple[str, ...] = ()  # argv of ExecStart
    timeout_start: float = 90.0  # seconds
    required_by: tuple[str, ...] = ()  # RequiredBy and BoundBy: units that restart with it

    @property
    def stopped_on_purpose(self) -> bool:
        """A person's will: never started for a change (design section 5)."""
        return self.active_state == "inactive" and self.result == "success"


class Systemd(Protocol):
    """Each call raises SystemdError; `timeout` in seconds."""

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState: ...
    async def restart(self, name: str, *, timeout: float) -> str:
        """Queue a restart job (mode replace) and wait for it: the job's result (`done`, `failed`, `canceled`, …)."""

    async def start(self, name: str, *, timeout: float) -> str: ...
    async def reset_failed(self, name: str, *, timeout: float = 5) -> None: ...
    async def arm(self, name: str, *, after: float, argv: tuple[str, ...]) -> None:
        """A transient timer and service `<name>` on the host: run `argv` after `after` seconds."""

    async def disarm(self, name: str) -> None:
        """Stop the timer if it has not fired; no error when there is none."""

    async def system_state(self, *, timeout: float = 5) -> str:
        """Manager's SystemState: running, degraded, starting, stopping, …"""

    async def watch(self, name: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call `changed` on every PropertiesChanged of the unit, across reconnects; returns the stop."""

    async def close(self) -> None: ...
