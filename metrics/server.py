"""A small HTTP/1.1 server that only answers GET and HEAD: asyncio streams and h11, one request per connection.

The agent pays for what it imports on every node, so this is all there is under /metrics, /healthz and /readyz; the
controller hands in more routes. Every read and every write has a deadline: a client that does not take what it
is sent is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import h11

log = logging.getLogger(__name__)

REQUEST_MAX = 8192
"""Bytes of a request's head."""
REQUEST_SECONDS = 5.0
"""In which a client must have sent its request."""
ANSWER_SECONDS = 30.0
"""In which a route must know its answer."""
BODY_SECONDS = 60.0
"""In which a client must have taken a whole body."""
CHUNK_SECONDS = 20.0
"""In which a client must have taken one chunk of a stream."""
CLOSE_SECONDS = 2.0
CONNECTIONS_MAX = 200
"""Further ones are closed at once: file descriptors are needed for the API server, too."""
SLICE = 64 * 1024
"""Bytes of a body that are copied for one client at a time."""
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Request:
    """`path` without its query; names in `headers` in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`body`: all of it, or a stream that goes on until it ends or the client hangs up."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: HTTPStatus = HTTPStatus.OK
    kind: str = TEXT
    """Content type."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further header fields."""


class CannotListen(Exception):
    """The port is taken, or may not be used; the message is for a person."""


Route = Callable[[Request], Awaitable[Answer]]


class Server:
    """`async with Server(port, routes)`: routes by exact path; what is open at the end of the block is cut."""

    def __init__(self, port: int, routes: Mapping[str, Route], *, host: str = "0.0.0.0") -> None:
        self._host = host
        self._port = port
        self._routes = routes
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Raises CannotListen."""
        try:
            self._listener = await asyncio.start_server(self._accepted, self._host, self._port, limit=REQUEST_MAX)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise CannotListen(f"cannot listen on {self._host}:{self._port}: {why}; choose another --port") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        """The port that is listened on; useful when 0 was asked for."""
        if self._listener is None:
            raise RuntimeError("the server has not been started")
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = _Exchange(reader, writer)
        try:
            await exchange.send(await self._answer(exchange))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, h11.LocalProtocolError):
            writer.transport.abort()  # not a request worth an answer, or a client that does not take it
        except Exception:
            log.exception("an answer could not be sent")
            writer.transport.abort()
        finally:
            await exchange.close()

    async def _answer(self, exchange: _Exchange) -> Answer:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                method, request = await exchange.request()
        except h11.RemoteProtocolError:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=b"bad request\n")
        if method not in ("GET", "HEAD"):
            refused = HTTPStatus.METHOD_NOT_ALLOWED
            return Answer(status=refused, body=b"read-only: GET or HEAD\n", fields={"allow": "GET, HEAD"})
        route = self._routes.get(request.path)
        if route is None:
            return Answer(status=HTTPStatus.NOT_FOUND, body=b"not found\n")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await route(request)
        except Exception:
            log.exception("a request could not be answered", extra={"path": request.path})
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"the log of this process says why\n")


class _Exchange:
    """One connection: one request, one answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_MAX)
        self._wants_body = True
        writer.transport.set_write_buffer_limits(high=0)  # `drain` then means that the kernel has taken it all

    async def request(self) -> tuple[str, Request]:
        """Method, and the rest. Raises h11.RemoteProtocolError on what is no request."""
        self._wire.receive_data(await self._reader.readuntil(b"\r\n\r\n"))
        head = self._wire.next_event()
        if not isinstance(head, h11.Request):
            raise h11.RemoteProtocolError("no request")
        self._wants_body = head.method != b"HEAD"
        url = urlsplit(head.target.decode("latin-1"))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        return head.method.decode("latin-1"), Request(path=url.path, query=query, headers=headers)

    async def send(self, answer: Answer) -> None:
        """Raises TimeoutError when the client takes too long."""
        if isinstance(answer.body, bytes):
            async with asyncio.timeout(BODY_SECONDS):
                await self._send_whole(answer, answer.body)
            return
        async with aclosing(answer.body) as stream:
            await self._send_chunk(_head(answer))
            if self._wants_body and not await self._pump(stream):
                return
        await self._send_chunk(h11.EndOfMessage())

    async def _send_whole(self, answer: Answer, body: bytes) -> None:
        unchanged = answer.status is HTTPStatus.NOT_MODIFIED  # its length would be that of what is not sent
        await self._put(_head(answer, *([] if unchanged else [("content-length", str(len(body)))])))
        if self._wants_body:
            for begin in range(0, len(body), SLICE):
                await self._put(h11.Data(data=body[begin : begin + SLICE]))
        await self._put(h11.EndOfMessage())

    async def _pump(self, stream: AsyncGenerator[bytes, None]) -> bool:
        """Send what comes; whether it came to its end before the client hung up."""
        gone = asyncio.ensure_future(self._hung_up())
        sending = asyncio.ensure_future(self._send_all(stream))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            sending.cancel()
            _, sent = await asyncio.gather(gone, sending, return_exceptions=True)
        if isinstance(sent, Exception):
            raise sent
        return sent is None

    async def _send_all(self, stream: AsyncGenerator[bytes, None]) -> None:
        async for chunk in stream:
            await self._send_chunk(h11.Data(data=chunk))

    async def _hung_up(self) -> None:
        while await self._reader.read(REQUEST_MAX):
            pass  # there is nothing more to say to us

    async def _send_chunk(self, event: h11.Event) -> None:
        async with asyncio.timeout(CHUNK_SECONDS):
            await self._put(event)

    async def _put(self, event: h11.Event) -> None:
        self._writer.write(self._wire.send(event) or b"")
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


def _head(answer: Answer, *fields: tuple[str, str]) -> h11.Response:
    headers = [("content-type", answer.kind), *fields, *answer.fields.items(), ("connection", "close")]
    return h11.Response(status_code=answer.status, headers=headers, reason=answer.status.phrase)
