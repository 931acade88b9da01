"""The HTTP/1.1 front end of the embedded API server: asyncio streams and h11, on the loopback only.

No TLS and no passwords: the user is whatever follows `Bearer` in the Authorization header.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import h11

from reconciler.kube.transport import JSON
from reconciler.sim.flow import Dropped
from reconciler.sim.requests import Request
from reconciler.sim.server import ApiServer

READ_SIZE = 64 * 1024
BODY_MAX = 3 << 20
"""Bytes: the API server's own limit of a request."""
IDLE = 120.0
"""Seconds that a connection may keep silent between two requests."""
WRITE_TIMEOUT = 20.0
"""Seconds in which a client must take what is sent; a slower one is cut off."""
CLOSE_TIMEOUT = 2.0


@asynccontextmanager
async def serve(server: ApiServer, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve until the block ends; gives the base URL. Connections that are open then are cut."""
    tasks: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(Connection(server, reader, writer).run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accepted, host, port)
    try:
        bound = listener.sockets[0].getsockname()[1]
        yield f"http://{host}:{bound}"
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Connection:
    """One client's connection, until either side ends it."""

    def __init__(self, server: ApiServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._wire = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        try:
            while await self._exchange():
                self._wire.start_next_cycle()
        except (ConnectionError, TimeoutError, Dropped, h11.ProtocolError):
            pass  # the client sees its connection close, which is all there is to tell it
        finally:
            await self._close()

    async def _exchange(self) -> bool:
        """One request and its answer; whether the connection can be used again."""
        request = await self._read()
        if request is None:
            return False
        if request.is_watch:
            await self._watch(request)
            return False
        response = await self._server.handle(request)
        headers = [*response.headers.items(), ("content-length", str(len(response.body)))]
        await self._send(h11.Response(status_code=response.status, headers=headers))
        await self._send(h11.Data(data=response.body))
        await self._send(h11.EndOfMessage())
        return self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE

    async def _watch(self, request: Request) -> None:
        served = await self._server.watch(request)
        async with aclosing(served.chunks):
            await self._send(h11.Response(status_code=served.status, headers=[("content-type", JSON)]))
            gone = asyncio.ensure_future(self._reader.read(1))
            try:
                await self._pump(served.chunks, gone)
            finally:
                gone.cancel()
        if not gone.done() or gone.cancelled():
            await self._send(h11.EndOfMessage())

    async def _pump(self, chunks: AsyncIterator[bytes], gone: asyncio.Future[bytes]) -> None:
        """Send what comes, until it ends or the client hangs up."""
        while True:
            chunk = asyncio.ensure_future(_next(chunks))
            either: set[asyncio.Future[Any]] = {chunk, gone}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not chunk.done():
                    chunk.cancel()
                    await asyncio.wait({chunk})
            if gone.done() or (data := chunk.result()) is None:
                return
            await self._send(h11.Data(data=data))

    async def _read(self) -> Request | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._wire.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(IDLE):
                    self._wire.receive_data(await self._reader.read(READ_SIZE))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > BODY_MAX:
                    raise Dropped("the request is too large")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return _request(head, bytes(body))
            else:
                return None

    async def _send(self, event: h11.Event) -> None:
        data = self._wire.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._writer.drain()

    async def _close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._writer.wait_closed()
        except (ConnectionError, TimeoutError):
            pass  # it is closed as far as we are concerned


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


def _request(head: h11.Request, body: bytes) -> Request:
    headers = {name.decode(): value.decode() for name, value in head.headers}
    url = urlsplit(head.target.decode())
    return Request(
        method=head.method.decode(),
        path=url.path,
        query=dict(parse_qsl(url.query, keep_blank_values=True)),
        body=body or None,
        content_type=headers.get("content-type", JSON),
        user=headers.get("authorization", "").removeprefix("Bearer "),
    )
