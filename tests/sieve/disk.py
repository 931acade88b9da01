"""What an agent asks of the kernel that changes the disk, call by call, and half of a write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from reconciler.sim.life import CURRENT, Life

CHANGES = (
    "chown",
    "fchmod",
    "fchown",
    "fsync",
    "ftruncate",
    "mkdir",
    "posix_fallocate",
    "rename",
    "replace",
    "rmdir",
    "setxattr",
    "unlink",
)
WRITING = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_RDWR


@contextmanager
def watched(torn: Callable[[Life], bool]) -> Iterator[None]:
    """Inside the block every such call of an agent is a step of its life; of a dead one it raises Killed.

    `torn(life)`: of the write that has just begun only a half is to be done.
    """
    with mock.patch.multiple(
        os,
        open=_opening(os.open),
        write=_writing(os.write, torn),
        **{name: _changing(name, getattr(os, name)) for name in CHANGES},
    ):
        yield


def _changing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        life = CURRENT.get()
        if life is None:
            return real(*args, **more)
        done = life.begin(f"disk {name} {_base(args[0])}")
        answer = real(*args, **more)
        done()
        return answer

    return call


def _opening(real: Callable[..., int]) -> Callable[..., int]:
    def call(path: Any, flags: int, *args: Any, **more: Any) -> int:
        life = CURRENT.get()
        if life is None or not flags & WRITING:
            return real(path, flags, *args, **more)
        done = life.begin(f"disk open {_base(path)}")
        handle = real(path, flags, *args, **more)
        try:
            done()
        except BaseException:
            os.close(handle)
            raise
        return handle

    return call


def _writing(real: Callable[..., int], torn: Callable[[Life], bool]) -> Callable[..., int]:
    def call(handle: int, data: Any) -> int:
        life = CURRENT.get()
        if life is None:
            return real(handle, data)
        done = life.begin("disk write")
        if torn(life):
            real(handle, bytes(data)[: len(data) // 2])
            life.ended.set()
        else:
            written = real(handle, data)
        done()
        return written

    return call


def _base(what: Any) -> str:
    return "" if isinstance(what, int) else Path(what).name
