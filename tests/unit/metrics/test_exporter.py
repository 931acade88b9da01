"""What the exporter answers, over a real socket on the loopback."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter

from metrics.exporter import Exporter


async def _get(port: int, path: str) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    async with asyncio.timeout(5):
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head.split("\r\n")[0], body


async def test_metrics_of_the_registry_are_shown() -> None:
    registry = CollectorRegistry()
    Counter("seen", "Times.", registry=registry).inc(3)
    async with Exporter(0, ready=lambda: True, host="127.0.0.1", registry=registry) as exporter:
        status, body = await _get(exporter.port, "/metrics")
    assert status == "HTTP/1.1 200 OK"
    assert "seen_total 3.0\n" in body


async def test_not_ready_is_503_and_does_not_make_it_dead() -> None:
    async with Exporter(0, ready=lambda: False, host="127.0.0.1") as exporter:
        assert await _get(exporter.port, "/readyz") == ("HTTP/1.1 503 Service Unavailable", "not yet\n")
        assert await _get(exporter.port, "/healthz") == ("HTTP/1.1 200 OK", "ok\n")


async def test_an_unknown_path_is_404() -> None:
    async with Exporter(0, ready=lambda: True, host="127.0.0.1") as exporter:
        assert (await _get(exporter.port, "/secrets"))[0] == "HTTP/1.1 404 Not Found"
