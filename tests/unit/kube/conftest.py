"""A scripted transport for what no real server does on demand, and a tiny HTTP server that checks tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest

from reconciler.kube.transport import JSON, ByteStream, Response, TransportError


def node(name: str, version: int, **metadata: object) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **metadata}}


def answer(status: int, body: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, headers or {}, msgspec.json.encode(body))


def listed(version: int, *items: dict[str, object]) -> Response:
    return answer(200, {"metadata": {"resourceVersion": str(version)}, "items": items})


def status(code: int, reason: str, message: str = "") -> dict[str, object]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@dataclass
class Watch:
    """One watch stream: each entry is an event, seconds of silence, or an error; then it ends."""

    script: list[dict[str, object] | float | Exception]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for entry in self.script:
            if isinstance(entry, Exception):
                raise entry
            if isinstance(entry, float):
                await asyncio.sleep(entry)
            else:
                yield msgspec.json.encode(entry) + b"\n"


@dataclass
class Scripted:
    """Answers in order; when none is left a request fails, and a watch stays silent for ever."""

    answers: list[Response | TransportError] = field(default_factory=list)
    watches: list[Watch | TransportError] = field(default_factory=list)
    asked: list[tuple[float, str, str, Mapping[str, str]]] = field(default_factory=list)
    """When, method, path, query."""

    def _note(self, method: str, path: str, query: Mapping[str, str] | None) -> None:
        self.asked.append((asyncio.get_running_loop().time(), method, path, dict(query or {})))

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
        self._note(method, path, query)
        given = self.answers.pop(0) if self.answers else TransportError("nothing scripted")
        if isinstance(given, TransportError):
            raise given
        return given

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncIterator[ByteStream]:
        self._note("WATCH", path, query)
        given = self.watches.pop(0) if self.watches else Watch([1e9])
        if isinstance(given, TransportError):
            raise given
        yield given

    async def close(self) -> None:
        """Nothing is open."""

    def watched(self) -> list[tuple[float, str]]:
        """When each watch began, and from which version."""
        return [(when, query["resourceVersion"]) for when, method, _, query in self.asked if method == "WATCH"]

    def lists(self) -> int:
        return sum(1 for _, method, _, _ in self.asked if method == "GET")


class Script:
    """What tests say in a script, by one fixture."""

    node = staticmethod(node)
    answer = staticmethod(answer)
    listed = staticmethod(listed)
    status = staticmethod(status)
    Watch = Watch
    Transport = Scripted


@pytest.fixture
def script() -> type[Script]:
    return Script


class TokenServer:
    """HTTP/1.1 with keep-alive; 401 unless the bearer token is `token`. `GET /watch` streams two chunks."""

    def __init__(self) -> None:
        self.token = "one"
        self.seen: list[tuple[str, str, str]] = []
        """Method, target, token of each request."""
        self.connections = 0
        self.hang = asyncio.Event()
        self.drop_at = ""
        """A target whose request is read, and answered by the end of the connection."""
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while True:
                await self._one(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            self._open.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if line)}
        await reader.readexactly(int(headers.get("content-length", "0")))
        token = headers.get("authorization", "").removeprefix("Bearer ")
        self.seen.append((method, target, token))
        if token != self.token:
            writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\n{}")
        elif target == self.drop_at:
            raise ConnectionAbortedError("as it was asked for")
        elif target.startswith("/latin"):
            writer.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nserver: Café\r\n\r\n{}".encode("latin-1"))
        elif target.startswith("/hang"):
            await self.hang.wait()
        elif target.startswith("/watch"):
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n")
        else:
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\nx-kind: A\r\n\r\n{"good":true}')
        await writer.drain()

    def drop(self) -> None:
        """Close every connection, as a server does that restarts."""
        for writer in self._open:
            writer.close()


@pytest.fixture
async def token_server() -> AsyncIterator[tuple[TokenServer, str]]:
    """The server and its base URL."""
    served = TokenServer()
    listener = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    yield served, f"http://127.0.0.1:{port}"
    served.hang.set()
    served.drop()
    listener.close()
    await listener.wait_closed()
