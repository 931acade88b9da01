"""Faults at the calls that change the disk or talk to systemd: the process dies there, or the call fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hostconfig_bench import Bench, Killed

CHANGES = (
    "write",
    "fsync",
    "fchmod",
    "fchown",
    "ftruncate",
    "posix_fallocate",
    "setxattr",
    "replace",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "chown",
)
SYSTEMD = ("restart", "arm", "disarm", "reset_failed")


class Calls:
    """Counts the calls and lets `fault(n, name)` raise at the n-th; once dead, every later call dies as well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
        self.seen: list[str] = []
        self._dead = False
        self._fault: Callable[[int, str], BaseException | None] = lambda n, name: None
        self._half_write = False
        for name in CHANGES:
            real = (lambda handle: None) if name == "fsync" else getattr(os, name)  # no power is cut here
            monkeypatch.setattr(os, name, self._wrapped(name, real))
        monkeypatch.setattr(os, "open", self._opening(os.open))
        for name in SYSTEMD:
            monkeypatch.setattr(bench.machine, name, self._asked(name, getattr(bench.machine, name)))

    @contextmanager
    def faults(self, fault: Callable[[int, str], BaseException | None], *, half_write: bool = False) -> Iterator[None]:
        """While it lasts. `half_write`: a write that fails has written half of its bytes."""
        self.seen, self._fault, self._half_write, self._dead = [], fault, half_write, False
        try:
            yield
        finally:
            self._fault, self._dead = lambda n, name: None, False

    def _meet(self, name: str) -> BaseException | None:
        if self._dead:
            return Killed(name)
        error = self._fault(len(self.seen), name)
        self.seen.append(name)
        self._dead = isinstance(error, Killed)
        return error

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            error = self._meet(name)
            if error is not None:
                if name == "write" and self._half_write and len(self.seen):
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise error
            return real(*args, **more)

        return call

    def _opening(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **more: Any) -> int:
            if flags & (os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_RDWR):
                error = self._meet(f"open {Path(path).name}")
                if error is not None:
                    raise error
            return real(path, flags, *args, **more)

        return call

    def _asked(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **more: Any) -> Any:
            error = self._meet(name)
            if isinstance(error, Killed):
                raise error
            return await real(*args, **more)

        return call
