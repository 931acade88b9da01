"""The server under the exporter: what it refuses, and how it treats clients that are slow or leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from http import HTTPStatus

import pytest

from metrics import server
from metrics.server import Answer, CannotListen, Request, Server


async def exchange(port: int, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Status line, header fields and body of the one answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(5):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *lines = head.decode().split("\r\n")
    return status, {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}, body


async def hello(request: Request) -> Answer:
    return Answer(body=f"hello {request.query.get('who', '')}".encode(), fields={"x-more": "1"})


async def broken(_: Request) -> Answer:
    raise ValueError("no")


async def unchanged(_: Request) -> Answer:
    return Answer(status=HTTPStatus.NOT_MODIFIED, fields={"etag": '"1"'})


def serving(**routes: server.Route) -> Server:
    return Server(0, {f"/{name}": route for name, route in routes.items()}, host="127.0.0.1")


async def test_a_route_is_found_by_its_path_and_sees_the_query() -> None:
    async with serving(hello=hello) as it:
        answer = await exchange(it.port, b"GET /hello?who=you HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer == (
        "HTTP/1.1 200 OK",
        {"content-type": "text/plain; charset=utf-8", "content-length": "9", "x-more": "1", "connection": "close"},
        b"hello you",
    )


async def test_head_has_the_fields_and_no_body() -> None:
    async with serving(hello=hello) as it:
        status, fields, body = await exchange(it.port, b"HEAD /hello?who=you HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (status, fields["content-length"], body) == ("HTTP/1.1 200 OK", "9", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_it_is_read_only(method: str) -> None:
    async with serving(hello=hello) as it:
        request = f"{method} /hello HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode()
        status, fields, _ = await exchange(it.port, request)
    assert (status, fields["allow"]) == ("HTTP/1.1 405 Method Not Allowed", "GET, HEAD")


async def test_what_is_no_http_is_told_so() -> None:
    async with serving(hello=hello) as it:
        assert (await exchange(it.port, b"knock knock\r\n\r\n"))[0] == "HTTP/1.1 400 Bad Request"


async def test_a_port_that_is_taken_is_told_with_its_number() -> None:
    async with serving(hello=hello) as first:
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{first.port}: Address already in use"):
            await Server(first.port, {}, host="127.0.0.1").__aenter__()


async def test_a_head_without_end_is_not_collected() -> None:
    async with serving(hello=hello) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        writer.write(b"GET /hello HTTP/1.1\r\nx: " + b"a" * 2 * server.REQUEST_MAX)
        async with asyncio.timeout(5):
            with suppress(ConnectionResetError):  # the end, seen from the other side of unread bytes
                assert await reader.read() == b""
        writer.transport.abort()


async def test_304_does_not_speak_of_a_length() -> None:
    async with serving(unchanged=unchanged) as it:
        status, fields, body = await exchange(it.port, b"GET /unchanged HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 304 Not Modified", b"")
    assert "content-length" not in fields


async def test_a_route_that_fails_is_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(broken=broken) as it:
        status, _, body = await exchange(it.port, b"GET /broken HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 500 Internal Server Error", b"the log of this process says why\n")
    assert "ValueError: no" in caplog.text


class Stream:
    """An endless route that tells when it has ended."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, _: Request) -> Answer:
        return Answer(body=self._chunks())

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"first\n"
            self.begun.set()
            while True:
                yield self.chunk
                await asyncio.sleep(0)
        finally:
            self.ended.set()


async def test_a_stream_ends_when_its_client_hangs_up() -> None:
    silent = asyncio.Event()

    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            silent.set()

    async def route(_: Request) -> Answer:
        return Answer(body=chunks())

    async with serving(stream=route) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"first\n")
        writer.close()
        async with asyncio.timeout(5):
            await silent.wait()


async def test_a_client_that_does_not_take_its_stream_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CHUNK_SECONDS", 0.2)
    stream = Stream(b"x" * server.SLICE)
    async with serving(stream=stream) as it:
        _, writer = await asyncio.open_connection("127.0.0.1", it.port, limit=1024)
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(10):  # it reads nothing
            await stream.ended.wait()
        assert stream.begun.is_set()
        writer.transport.abort()


async def test_no_more_connections_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 1)
    stream = Stream(b"more\n")
    async with serving(stream=stream) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"first\n")
        further, unheard = await asyncio.open_connection("127.0.0.1", it.port)
        unheard.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        with suppress(ConnectionResetError):
            assert await further.read(1) == b""
        assert not stream.ended.is_set()
        unheard.transport.abort()
        writer.transport.abort()


async def test_the_end_of_the_server_ends_its_streams() -> None:
    stream = Stream(b"more\n")
    async with serving(stream=stream) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        writer.write(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"first\n")
    assert stream.ended.is_set()
    writer.transport.abort()
