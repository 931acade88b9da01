"""The light transport over real sockets: keep-alive, tokens that rotate, deadlines, TLS."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.light import LightTransport
from reconciler.kube.transport import TransportError


@pytest.fixture
async def light(token_server: tuple[Any, str], tmp_path: Path) -> AsyncIterator[LightTransport]:
    (tmp_path / "token").write_text("one\n")
    transport = LightTransport(token_server[1], token_file=tmp_path / "token")
    yield transport
    await transport.close()


async def test_one_connection_serves_requests_one_after_the_other(light: LightTransport, token_server: Any) -> None:
    server, _ = token_server
    for _ in range(3):
        response = await light.request("PATCH", "/a", query={"x": "1 2"}, body=b"{}")
        assert (response.status, response.body) == (200, b'{"good":true}')
        assert response.headers["x-kind"] == "A"
    assert server.connections == 1
    assert server.seen[0] == ("PATCH", "/a?x=1+2", "one")


async def test_connections_are_bounded(light: LightTransport, token_server: Any) -> None:
    server, _ = token_server
    await asyncio.gather(*(light.request("GET", "/a") for _ in range(40)))
    assert server.connections <= 4


async def test_a_rotated_token_is_read_again(light: LightTransport, token_server: Any, tmp_path: Path) -> None:
    server, _ = token_server
    await light.request("GET", "/a")
    server.token = "two"
    fresh = tmp_path / "fresh"
    fresh.write_text("two")
    fresh.rename(tmp_path / "token")
    assert (await light.request("GET", "/a")).status == 200
    assert [token for _, _, token in server.seen] == ["one", "two"]


async def test_a_401_that_no_new_token_cures_is_the_answer(light: LightTransport, token_server: Any) -> None:
    server, _ = token_server
    server.token = "another"
    assert (await light.request("GET", "/a")).status == 401
    assert len(server.seen) == 1


async def test_a_connection_that_was_closed_while_idle_is_replaced(light: LightTransport, token_server: Any) -> None:
    server, _ = token_server
    await light.request("GET", "/a")
    server.drop()
    await asyncio.sleep(0.01)
    assert (await light.request("PATCH", "/a", body=b"{}")).status == 200
    assert server.connections == 2


async def test_a_deadline_is_kept(light: LightTransport) -> None:
    with pytest.raises(TransportError, match="no answer"):
        await light.request("GET", "/hang", timeout=0.05)


async def test_a_server_that_is_not_there() -> None:
    transport = LightTransport("http://127.0.0.1:9")
    with pytest.raises(TransportError, match="GET /a"):
        await transport.request("GET", "/a")


async def test_a_stream_is_read_as_it_comes(light: LightTransport) -> None:
    async with light.stream("/watch", query={"watch": "true"}, timeout=5) as stream:
        assert stream.status == 200
        assert b"".join([chunk async for chunk in stream]) == b"one\ntwo\n"


async def test_a_stream_that_breaks_raises(light: LightTransport, token_server: Any) -> None:
    server, _ = token_server

    async def drop() -> None:
        while not server.seen:  # noqa: ASYNC110  the server is a script
            await asyncio.sleep(0.001)
        server.drop()

    dropping = asyncio.ensure_future(drop())
    with pytest.raises(TransportError):
        async with light.stream("/hang", timeout=5):
            raise AssertionError("no headers were sent")
    await dropping


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="give http://HOST:PORT"):
        LightTransport("10.0.0.1:6443")


async def authority(folder: Path, name: str) -> tuple[Path, Path]:
    """Key and certificate of a server that vouches for itself."""
    key, cert = folder / f"{name}.key", folder / f"{name}.crt"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=api"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    await asyncio.to_thread(subprocess.run, [*command.split(), *names], check=True, capture_output=True)
    return key, cert


@pytest.fixture
async def tls_server(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """Its address, and the certificate that it must be trusted by."""
    key, cert = await authority(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", cert
    listener.close()
    await listener.wait_closed()


async def test_tls_trusts_only_the_given_ca(tls_server: tuple[str, Path]) -> None:
    url, cert = tls_server
    trusting = LightTransport(url, ca_file=cert)
    assert (await trusting.request("GET", "/a")).body == b"hi"
    with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED"):
        await LightTransport(url).request("GET", "/a")
    await trusting.close()


async def test_a_ca_that_was_rotated_is_read_again(tls_server: tuple[str, Path], tmp_path: Path) -> None:
    url, cert = tls_server
    _, old = await authority(tmp_path, "old")
    transport = LightTransport(url, ca_file=old)
    with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED"):
        await transport.request("GET", "/a")
    cert.replace(old)
    assert (await transport.request("GET", "/a")).body == b"hi"
    await transport.close()


async def test_a_header_in_latin_1_is_read(light: LightTransport) -> None:
    assert (await light.request("GET", "/latin")).headers["server"] == "Café"
