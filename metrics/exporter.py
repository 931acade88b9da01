"""/metrics, /healthz and /readyz on a small asyncio HTTP server: the agent has no heavier one, and shares it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

REQUEST_MAX = 8192
"""Bytes of a request's head."""
REQUEST_SECONDS = 5.0


class Exporter:
    """`async with Exporter(port, ready=…)`: `ready` says what /readyz answers, `alive` what /healthz does."""

    def __init__(
        self,
        port: int,
        *,
        ready: Callable[[], bool],
        alive: Callable[[], bool] = lambda: True,
        host: str = "0.0.0.0",
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._host = host
        self._port = port
        self._ready = ready
        self._alive = alive
        self._registry = registry
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Exporter:
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=REQUEST_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def port(self) -> int:
        """The port that is listened on; useful when 0 was asked for."""
        if self._server is None:
            raise RuntimeError("the exporter has not been started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
                fields = f"content-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close"
                writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # not a request worth an answer
        finally:
            writer.close()

    def _answer(self, line: str) -> tuple[str, str, bytes]:
        path = [*line.split(" "), "", ""][1].split("?")[0]
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry)
        checks = {"/healthz": self._alive, "/readyz": self._ready}
        if path not in checks:
            return "404 Not Found", "text/plain", b"not found\n"
        good = checks[path]()
        return ("200 OK", "text/plain", b"ok\n") if good else ("503 Service Unavailable", "text/plain", b"not yet\n")
