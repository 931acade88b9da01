"""The one narrow way to an API server: a request, and a stream of bytes.

Three adapters offer it: `kube.cluster` (kubernetes-asyncio, for controller and CLI), `kube.light` (asyncio
streams and h11, for the agent), `sim.memory` (in process). Nothing above this line knows which.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class TransportError(Exception):
    """No answer: the connection failed or timed out. Whether a write took effect is not known."""


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    """Lower-case names."""
    body: bytes


class ByteStream(Protocol):
    """An answer whose body comes in pieces; iteration raises TransportError when the connection breaks."""

    status: int
    headers: Mapping[str, str]

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
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
        """One exchange, whatever its status. Raises TransportError. `timeout` in seconds, for the whole of it.

        A 401 is tried once more with freshly read credentials.
        """

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AbstractAsyncContextManager[ByteStream]:
        """A GET whose body is read as it comes (a watch). `timeout` in seconds, until the headers are there."""

    async def close(self) -> None: ...
