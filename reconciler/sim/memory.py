"""The in-memory transport: the same bytes as over HTTP, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from reconciler.kube.transport import JSON, ByteStream, Response, TransportError
from reconciler.sim.apiserver import ApiServer, StatusError, Target, Watcher, encode, parse_path

BOOKMARK_EVERY = 60.0
"""Seconds, as the real server does about."""


def handle(
    server: ApiServer, method: str, path: str, query: Mapping[str, str], body: bytes | None, content_type: str
) -> tuple[int, dict[str, str], bytes]:
    """One request that is not a watch: status, headers, body. Never raises for a bad request."""
    try:
        target = parse_path(path)
        code, answer = _dispatch(server, method, target, query, body, content_type)
    except StatusError as error:
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        return error.code, {"content-type": JSON, **headers}, encode(error.body())
    except msgspec.MsgspecError as error:
        return 400, {"content-type": JSON}, encode(StatusError(400, "BadRequest", str(error)).body())
    return code, {"content-type": JSON}, encode(answer)


def _dispatch(
    server: ApiServer, method: str, target: Target, query: Mapping[str, str], body: bytes | None, content_type: str
) -> tuple[int, object]:
    content = msgspec.json.decode(body) if body else {}
    match method:
        case "GET" if target.name:
            return 200, server.get(target)
        case "GET":
            return 200, server.list(target, query)
        case "POST":
            return 201, server.create(target, content)
        case "PUT":
            return 200, server.replace(target, content)
        case "PATCH":
            return 200, server.patch(target, content, content_type)
        case "DELETE":
            return 200, server.delete(target, content)
    raise StatusError(405, "MethodNotAllowed", f"{method} is not supported")


async def watch_chunks(server: ApiServer, watcher: Watcher, timeout: float) -> AsyncIterator[bytes]:
    """The lines of a watch, with bookmarks, until it ends or `timeout` seconds are over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    next_mark = loop.time() + BOOKMARK_EVERY
    try:
        while loop.time() < end:
            while watcher.queue:
                event = watcher.queue.popleft()
                if event is None:
                    return
                yield encode(event) + b"\n"
            watcher.ready.clear()
            wait = min(end, next_mark) - loop.time()
            try:
                async with asyncio.timeout(max(wait, 0)):
                    await watcher.ready.wait()
            except TimeoutError:
                if loop.time() >= next_mark:
                    server.bookmark(watcher)
                    next_mark = loop.time() + BOOKMARK_EVERY
    finally:
        server.unwatch(watcher)


class MemoryTransport:
    """`latency` in seconds is what each exchange takes; `cut` makes the server unreachable."""

    def __init__(self, server: ApiServer, *, latency: float = 0.001) -> None:
        self._server = server
        self._latency = latency
        self.cut = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = 10.0,
    ) -> Response:
        await asyncio.sleep(self._latency)
        if self.cut:
            raise TransportError(f"{method} {path}: connection refused")
        status, headers, answer = handle(self._server, method, path, query or {}, body, content_type)
        await asyncio.sleep(self._latency)
        return Response(status, headers, answer)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncIterator[ByteStream]:
        await asyncio.sleep(self._latency)
        if self.cut:
            raise TransportError(f"GET {path}: connection refused")
        asked = query or {}
        try:
            watcher = self._server.watch(parse_path(path), asked)
        except StatusError as error:
            yield _Stream(error.code, _one(encode(error.body())))
            return
        chunks = watch_chunks(self._server, watcher, float(asked.get("timeoutSeconds", "300")))
        try:
            yield _Stream(200, chunks)
        finally:
            self._server.unwatch(watcher)

    async def close(self) -> None:
        """Nothing is held open."""


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


class _Stream:
    def __init__(self, status: int, chunks: AsyncIterator[bytes]) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"content-type": JSON}
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks
