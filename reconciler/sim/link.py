"""A transport that can be cut off from its server, whatever carries it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

from reconciler.kube.transport import JSON, ByteStream, Response, Transport, TransportError


class Link:
    """While `cut`, requests fail at once, answers are lost, and open watches fall silent."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
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
        self._check()
        response = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        )
        self._check()
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncGenerator[ByteStream]:
        self._check()
        async with self._inner.stream(path, query=query, timeout=timeout) as stream:
            yield _Stream(stream, self)

    async def close(self) -> None:
        await self._inner.close()

    def _check(self) -> None:
        if self.cut:
            raise TransportError("connection refused: the link is cut")


class _Stream:
    def __init__(self, inner: ByteStream, link: Link) -> None:
        self.status = inner.status
        self.headers = inner.headers
        self._inner = inner
        self._link = link

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            if not self._link.cut:
                yield chunk
