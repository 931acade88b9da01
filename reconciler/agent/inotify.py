"""The socket came or went: inotify on its directory and on that one's parent.

systemd may make the directory anew, which ends a watch on it; the parent's watch tells, and it is watched again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from asyncinotify import Inotify, Mask

_CHANGES = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.DELETE_SELF | Mask.MOVE_SELF


class SocketDirectory:
    """`async with SocketDirectory(path)(changed):`. Raises OSError where inotify has nothing left to give."""

    def __init__(self, socket: Path) -> None:
        self._folder = socket.parent
        self._names = {socket.name, socket.parent.name}

    @asynccontextmanager
    async def __call__(self, changed: Callable[[], None]) -> AsyncIterator[None]:
        with Inotify() as notify:
            notify.add_watch(self._folder.parent, _CHANGES)
            self._watch(notify)
            task = asyncio.create_task(self._follow(notify, changed))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _follow(self, notify: Inotify, changed: Callable[[], None]) -> None:
        async for event in notify:
            if event.name is not None and event.name.name not in self._names:
                continue
            if event.name is not None and event.name.name == self._folder.name:
                self._watch(notify)
            changed()

    def _watch(self, notify: Inotify) -> None:
        with contextlib.suppress(FileNotFoundError):  # not there yet: the parent tells when it is
            notify.add_watch(self._folder, _CHANGES)
