"""What the project needs of CRI, as types; the gRPC client and the simulated containerd both offer it.

Only the calls and fields that are used exist here (and in the `.proto`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol


class Code(enum.IntEnum):
    """gRPC status codes that are told apart."""

    OK = 0
    CANCELED = 1
    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CriError(Exception):
    """A CRI call that failed.

    `connection` is true when it failed before an answer came (dial, EOF, transport closing), false
    when containerd answered with this status. Classing never looks at words (design section 5), except
    the one text `server is not initialized yet`.
    """

    def __init__(self, code: Code, message: str, *, connection: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.connection = connection


@dataclass(frozen=True)
class Version:
    runtime_name: str
    runtime_version: str


@dataclass(frozen=True)
class Status:
    """`Status` with verbose info, reduced to what may be kept (never log the rest: it holds passwords)."""

    runtime_ready: bool
    network_ready: bool
    network_reason: str = ""
    handlers: tuple[str, ...] = ()
    """Sorted names of the handlers CRI serves (`config.containerd.runtimes` of the info)."""
    default_runtime: str = ""


@dataclass(frozen=True)
class Sandbox:
    id: str
    name: str
    namespace: str
    pod_uid: str
    ready: bool
    handler: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class ContainerState(enum.IntEnum):
    CREATED = 0
    RUNNING = 1
    EXITED = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class Container:
    id: str
    name: str
    sandbox_id: str
    pod_uid: str
    state: ContainerState
    labels: dict[str, str] = field(default_factory=dict)


class Cri(Protocol):
    """Each call raises CriError; `timeout` in seconds is a hard limit of the call."""

    async def version(self, *, timeout: float) -> Version: ...
    async def status(self, *, timeout: float) -> Status: ...
    async def sandboxes(self, *, timeout: float) -> list[Sandbox]: ...
    async def containers(self, *, timeout: float) -> list[Container]: ...
    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        """`grace` in seconds, handed to containerd. Idempotent."""

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        """Stops its containers with no grace. Idempotent. Never removes: kubelet still reads end states."""

    def close(self) -> None:
        """Drop the channel; the next call dials anew. Never raises."""
