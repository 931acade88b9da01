"""The agent's transport: asyncio streams and h11. Small, because every node pays for it.

In-cluster: the token is read again when its file changes (kubelet rotates it) and once after a 401.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import h11

from reconciler.kube.transport import JSON, ByteStream, Response, TransportError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONNECTIONS = 4
"""Requests at once; a watch has a connection of its own."""
IDLE = 60.0
"""Seconds that an unused connection is kept; the API server closes later than that."""
READ_SIZE = 65536


class LightTransport:
    """`base` is `http://host:port` or `https://host:port`; `token_file` holds a bearer token."""

    def __init__(
        self, base: str, *, ca_file: Path | None = None, token_file: Path | None = None, token: str = ""
    ) -> None:
        url = urlsplit(base)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"API server address {base!r}: give http://HOST:PORT or https://HOST:PORT")
        self._host = url.hostname
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._authority = url.netloc
        self._ca_file = ca_file
        self._tls = self._trust() if url.scheme == "https" else None
        self._token_file = token_file
        self._token = token
        self._token_stamp = (0, 0)
        self._idle: list[tuple[float, _Connection]] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)

    @classmethod
    def in_cluster(cls) -> LightTransport:
        """From the environment and files that every pod has. Raises OSError or KeyError where there are none."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", ca_file=SERVICE_ACCOUNT / "ca.crt", token_file=SERVICE_ACCOUNT / "token")

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
        try:
            async with asyncio.timeout(timeout), self._slots:
                response = await self._exchange(method, path, query, body, content_type)
                if response.status == 401 and await self._read_token(force=True):
                    response = await self._exchange(method, path, query, body, content_type)
                return response
        except TimeoutError as error:
            raise TransportError(f"{method} {path}: no answer within {timeout:.0f} s") from error
        except (OSError, h11.ProtocolError, asyncio.IncompleteReadError) as error:
            raise TransportError(f"{method} {path}: {error!r}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncIterator[ByteStream]:
        connection: _Connection | None = None
        try:
            try:
                async with asyncio.timeout(timeout):
                    connection = await self._connect()
                    head = await connection.send("GET", path, query, None, JSON, await self._headers())
                    if head.status_code == 401 and await self._read_token(force=True):
                        connection.close()
                        connection = await self._connect()
                        head = await connection.send("GET", path, query, None, JSON, await self._headers())
            except TimeoutError as error:
                raise TransportError(f"GET {path}: no answer within {timeout:.0f} s") from error
            except (OSError, h11.ProtocolError) as error:
                raise TransportError(f"GET {path}: {error!r}") from error
            yield _Stream(connection, head, path)
        finally:
            if connection is not None:
                connection.close()

    async def close(self) -> None:
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str
    ) -> Response:
        connection, reused = await self._borrow()
        headers = await self._headers()
        try:
            try:
                head = await connection.send(method, path, query, body, kind, headers)
            except (OSError, h11.RemoteProtocolError):
                if not reused or method != "GET":
                    raise
                connection.close()  # the server had closed it while it was idle
                connection = await self._connect()
                head = await connection.send(method, path, query, body, kind, headers)
            content = b"".join([chunk async for chunk in connection.body()])
        except BaseException:
            connection.close()
            raise
        if connection.reusable():
            self._idle.append((_now(), connection))
        else:
            connection.close()
        return Response(head.status_code, _headers(head), content)

    async def _borrow(self) -> tuple[_Connection, bool]:
        while self._idle:
            since, connection = self._idle.pop()
            if _now() - since < IDLE and not connection.lost():
                return connection, True
            connection.close()
        return await self._connect(), False

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._ca_file) if self._ca_file else None)

    async def _connect(self) -> _Connection:
        """An authority that is not trusted may be the next one: the file of authorities is read again, once."""
        try:
            return await self._open()
        except ssl.SSLCertVerificationError:
            if self._ca_file is None:
                raise
            self._tls = await asyncio.to_thread(self._trust)
            return await self._open()

    async def _open(self) -> _Connection:
        reader, writer = await self._streams()
        return _Connection(reader, writer, self._authority)

    async def _streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=1 << 20)

    async def _headers(self) -> list[tuple[str, str]]:
        await self._read_token(force=False)
        return [("authorization", f"Bearer {self._token}")] if self._token else []

    async def _read_token(self, *, force: bool) -> bool:
        """Read the token if its file changed (or always); whether it is another one now."""
        if self._token_file is None:
            return False
        return await asyncio.to_thread(self._load, self._token_file, force)

    def _load(self, path: Path, force: bool) -> bool:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp == self._token_stamp and not force:
            return False
        token = path.read_text().strip()
        changed = token != self._token
        self._token, self._token_stamp = token, stamp
        return changed


class _Connection:
    """One HTTP/1.1 connection; one exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
        self._reader = reader
        self._writer = writer
        self._authority = authority
        self._http = h11.Connection(h11.CLIENT)

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        headers: list[tuple[str, str]],
    ) -> h11.Response:
        target = f"{path}?{urlencode(query)}" if query else path
        fields = [("host", self._authority), ("accept", JSON), ("user-agent", "runtime-reconciler"), *headers]
        if body is not None:
            fields += [("content-type", content_type), ("content-length", str(len(body)))]
        events: list[Any] = [h11.Request(method=method, target=target, headers=fields)]
        if body is not None:
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        for event in events:
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
        head = await self._next()
        while isinstance(head, h11.InformationalResponse):
            head = await self._next()
        if not isinstance(head, h11.Response):
            raise ConnectionResetError("connection closed before an answer")
        return head

    async def body(self) -> AsyncIterator[bytes]:
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise ConnectionResetError("connection closed in the middle of an answer")

    def reusable(self) -> bool:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    def lost(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def _next(self) -> Any:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(READ_SIZE))
                continue
            return event


class _Stream:
    def __init__(self, connection: _Connection, head: h11.Response, path: str) -> None:
        self.status = head.status_code
        self.headers: Mapping[str, str] = _headers(head)
        self._connection = connection
        self._path = path

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._connection.body():
                yield chunk
        except (OSError, h11.ProtocolError) as error:
            raise TransportError(f"GET {self._path}: {error!r}") from error


def _headers(head: h11.Response) -> dict[str, str]:
    """Any byte may stand in a value: the field's own reading is Latin-1, which has a character for each."""
    return {name.decode().lower(): value.decode("latin-1") for name, value in head.headers}


def _now() -> float:
    return asyncio.get_running_loop().time()
