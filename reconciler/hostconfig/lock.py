"""The host-wide lock: `flock` on a file that is never deleted (design 6.7)."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from reconciler.hostconfig.model import Code, Refused

POLL = 0.1
"""Seconds between two tries: flock has no wait with a deadline."""


@asynccontextmanager
async def host_lock(path: Path, *, wait: float) -> AsyncIterator[None]:
    """Hold the lock. Raises Refused(Busy) after `wait` seconds, Refused(NotWritable) when it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(Code.NOT_WRITABLE, f"{path}: {error.strerror}") from error
    try:
        await _acquire(handle, path, wait)
        yield
    finally:
        os.close(handle)


async def _acquire(handle: int, path: Path, wait: float) -> None:
    until = asyncio.get_running_loop().time() + wait
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                raise
        if asyncio.get_running_loop().time() >= until:
            raise Refused(Code.BUSY, f"another change holds {path}")
        await asyncio.sleep(POLL)
