"""A wire without sockets: the agent's own HTTP client and the HTTP front end, joined by bytes in memory.

Slower than `sim.memory`, and the same bytes as over a socket: a connection can break at any of them, in the middle of
a request as well as of an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context

from reconciler.kube.light import LightTransport
from reconciler.sim.http import Connection
from reconciler.sim.server import ApiServer

LIMIT = 1 << 20
"""Bytes on their way in one direction, beyond which the sender waits (twice that)."""


class Wire(LightTransport):
    """One client's way to `server`. Its connections end with `close`."""

    def __init__(self, server: ApiServer, *, user: str) -> None:
        super().__init__("http://simulated", token=user)
        self._server = server
        self._ends: dict[_End, asyncio.Task[None]] = {}
        """The client's end of each connection, and who serves the other one."""

    def cut(self, after: int) -> int:
        """Each connection that is open breaks when `after` more bytes went through it. How many there are."""
        for end in self._ends:
            end.left = after
            end.peer.left = after
        return len(self._ends)

    async def close(self) -> None:
        await super().close()
        serving = [*self._ends.values()]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = _End(), _End()
        ours.peer, theirs.peer = theirs, ours
        task = asyncio.get_running_loop().create_task(
            Connection(self._server, theirs.reader, theirs.writer).run(), context=Context()
        )
        self._ends[ours] = task
        task.add_done_callback(lambda done: self._ends.pop(ours, None))
        return ours.reader, ours.writer


class _End(asyncio.Transport):
    """One end of a connection. What is written here is read at its peer."""

    peer: _End

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        """Bytes that may still be written, at either end, before the connection breaks; None: as many as you like."""
        self._closing = False
        self.reader = asyncio.StreamReader(limit=LIMIT)
        self._protocol = asyncio.StreamReaderProtocol(self.reader)
        self._protocol.connection_made(self)
        self.writer = asyncio.StreamWriter(self, self._protocol, self.reader, asyncio.get_running_loop())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        passing = bytes(data)
        if self.left is not None:
            passing = passing[: self.left]
            self.left -= len(passing)
            self.peer.left = self.left
        if passing:
            self.peer.reader.feed_data(passing)
        if self.left == 0:
            self._lose(ConnectionResetError("cut"))
            self.peer._lose(ConnectionResetError("cut"))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._lose(None)
        self.peer._lose(None)

    def pause_reading(self) -> None:
        self.peer._protocol.pause_writing()

    def resume_reading(self) -> None:
        self.peer._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)
