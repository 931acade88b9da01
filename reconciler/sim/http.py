"""The embedded API server over HTTP/1.1 on loopback, so that the very same client code runs against it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import h11

from reconciler.kube.transport import JSON
from reconciler.sim.apiserver import ApiServer, StatusError, encode, parse_path
from reconciler.sim.memory import handle, watch_chunks

READ_SIZE = 65536


class HttpFrontend:
    """`async with HttpFrontend(server) as url:`"""

    def __init__(self, server: ApiServer, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._listener = await asyncio.start_server(self._serve, self._host, self._port)
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        http = h11.Connection(h11.SERVER)
        try:
            while await self._exchange(http, reader, writer):
                http.start_next_cycle()
        except (OSError, h11.ProtocolError, asyncio.CancelledError):
            pass  # the client went away, or we are being closed
        finally:
            writer.close()

    async def _exchange(self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request, body = await _read(http, reader)
        if request is None:
            return False
        url = urlsplit(request.target.decode())
        query = dict(parse_qsl(url.query))
        method = request.method.decode()
        if method == "GET" and query.get("watch") in ("true", "1"):
            return await self._watch(http, writer, url.path, query)
        kind = next((v.decode() for k, v in request.headers if k == b"content-type"), JSON)
        status, headers, answer = handle(self._server, method, url.path, query, body or None, kind)
        fields = [*headers.items(), ("content-length", str(len(answer)))]
        _send(http, writer, h11.Response(status_code=status, headers=fields), h11.Data(data=answer), h11.EndOfMessage())
        await writer.drain()
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    async def _watch(
        self, http: h11.Connection, writer: asyncio.StreamWriter, path: str, query: dict[str, str]
    ) -> bool:
        chunks: AsyncIterator[bytes]
        try:
            watcher = self._server.watch(parse_path(path), query)
        except StatusError as error:
            body = encode(error.body())
            fields = [("content-type", JSON), ("content-length", str(len(body)))]
            _send(
                http,
                writer,
                h11.Response(status_code=error.code, headers=fields),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
            return False
        fields = [("content-type", JSON), ("transfer-encoding", "chunked")]
        _send(http, writer, h11.Response(status_code=200, headers=fields))
        chunks = watch_chunks(self._server, watcher, float(query.get("timeoutSeconds", "300")))
        try:
            async for chunk in chunks:
                _send(http, writer, h11.Data(data=chunk))
                await writer.drain()
        finally:
            self._server.unwatch(watcher)
        _send(http, writer, h11.EndOfMessage())
        await writer.drain()
        return False


async def _read(http: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request | None, bytes]:
    request: h11.Request | None = None
    body = b""
    while True:
        event: Any = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(READ_SIZE))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return request, body
        else:
            return None, b""


def _send(http: h11.Connection, writer: asyncio.StreamWriter, *events: Any) -> None:
    for event in events:
        writer.write(http.send(event) or b"")
