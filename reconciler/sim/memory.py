"""The in-memory transport: an API server in the same process, with no socket in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

from reconciler.kube.transport import JSON, Response, TransportError
from reconciler.sim.flow import Dropped
from reconciler.sim.requests import Request
from reconciler.sim.server import ApiServer


class MemoryStream:
    """The body of one watch."""

    def __init__(self, status: int, chunks: AsyncIterator[bytes]) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"content-type": JSON}
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


async def _received(chunks: AsyncIterator[bytes], path: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except Dropped as error:
        raise TransportError(f"watch {path}: {error}") from error


class MemoryTransport:
    """`user` is who the server's audit says it was."""

    def __init__(self, server: ApiServer, *, user: str) -> None:
        self._server = server
        self._user = user

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
        await asyncio.sleep(0)
        request = Request(method, path, query or {}, body, content_type, self._user)
        try:
            async with asyncio.timeout(timeout):
                return await self._server.handle(request)
        except (Dropped, TimeoutError) as error:
            raise TransportError(str(error) or f"{method} {path}: no answer within {timeout} s") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncGenerator[MemoryStream]:
        request = Request("GET", path, {**(query or {}), "watch": "true"}, user=self._user)
        try:
            async with asyncio.timeout(timeout):
                served = await self._server.watch(request)
        except (Dropped, TimeoutError) as error:
            raise TransportError(str(error) or f"watch {path}: no answer within {timeout} s") from error
        async with aclosing(served.chunks):
            yield MemoryStream(served.status, _received(served.chunks, path))

    async def close(self) -> None:
        """Nothing is held open."""
