"""The proxy: it ends the client's connection, asks the server on one of its own, and answers as the fault has it."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

import h11

from tests.fire.faults import Canned, Fault, draw

SIZES = (1, 7, 300, 5000, 5000)
"""Bytes of the chunks that an answer is sent in: also such as end within a line, or within a character."""


_ANYBODY = ssl._create_unverified_context()


@dataclass
class Proxy:
    """Faults strike a share of `odds` of all requests while it `burns`. Times are the loop's."""

    upstream: str
    rng: random.Random
    slower: float = 1.0
    """The server is asked to end watches so many times sooner, as its clock is slower than the loop's."""
    odds: float = 0.6
    burns: bool = True
    dead: bool = False
    """Every request ends in a reset: an outage."""
    story: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    """By resource, of the run's own writer, which does not go this way."""
    expired: int = 0
    """Answers and events 410 that came from the server."""
    requests: int = 0
    at_once: int = 0
    most_at_once: int = 0
    """Requests under way, watches left out."""

    def note(self, what: str) -> None:
        self.story.append(f"{asyncio.get_running_loop().time():12.2f}  {what}")

    @asynccontextmanager
    async def serve(self, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        tasks: set[asyncio.Task[None]] = set()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(_Connection(self, reader, writer).run())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        listener = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def draw(self, what: str, *, watch: bool) -> Fault:
        fault = draw(self.rng, watch=watch) if self.burns and self.rng.random() < self.odds else Fault("none")
        if self.dead:
            fault = Fault("dead", cut_at=-1)
        if fault.name != "none":
            self.struck[fault.name] += 1
            self.note(f"{what}: {fault.name} {'' if fault.cut_at is None else fault.cut_at}")
        return fault


class _Cut(Exception):
    """The answer ends here."""


class _Connection:
    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._wire = h11.Connection(h11.SERVER)
        self._sent = 0

    async def run(self) -> None:
        try:
            closing = False
            while (got := await self._read()) is not None and not closing:
                closing = await self._exchange(*got)
                self._wire.start_next_cycle()
        except (_Cut, OSError, h11.ProtocolError, asyncio.IncompleteReadError):
            pass  # one side has gone
        finally:
            self._writer.close()

    async def _exchange(self, head: h11.Request, body: bytes) -> bool:
        url = urlsplit(head.target.decode())
        watch = "watch=true" in url.query
        fault = self._proxy.draw(f"{head.method.decode()} {'watch ' if watch else ''}{url.path}", watch=watch)
        self._proxy.requests += 1
        self._proxy.at_once += not watch
        self._proxy.most_at_once = max(self._proxy.most_at_once, self._proxy.at_once)
        self._sent = 0
        answering = asyncio.ensure_future(self._answer(fault, head, body, watch))
        gone = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise _Cut
            answering.result()
        finally:
            self._proxy.at_once -= not watch
            for task in (answering, gone):
                task.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)
        return fault.close_after

    async def _gone(self) -> None:
        """Returns when the client hangs up; a client of ours sends nothing before it has its answer."""
        while True:
            event = self._wire.next_event()
            if event not in (h11.NEED_DATA, h11.PAUSED):
                return
            data = await self._reader.read(65536)
            self._wire.receive_data(data)
            if not data:
                return

    async def _answer(self, fault: Fault, head: h11.Request, body: bytes, watch: bool) -> None:
        await asyncio.sleep(fault.delay)
        if fault.cut_at == -1:
            await self._end(fault.how)
        if fault.canned is not None:
            await self._canned(fault.canned)
            return
        async with _ask(self._proxy, head, body) as (status, pieces):
            self._proxy.expired += status == 410
            await self._send(fault, self._wire.send(_head(status)) or b"")
            if fault.in_stream and watch:
                await self._chunks(fault, fault.in_stream)
            else:
                async for piece in pieces:
                    self._proxy.expired += watch and b'"code":410' in piece
                    await self._chunks(fault, piece)
            await self._send(fault, self._wire.send(h11.EndOfMessage()) or b"")

    async def _canned(self, canned: Canned) -> None:
        fields = [(name.encode(), value.encode("latin-1")) for name, value in canned.headers]
        fields.append((b"content-length", str(len(canned.body)).encode()))
        for event in (
            h11.Response(status_code=canned.status, headers=fields),
            h11.Data(canned.body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._wire.send(event) or b"")
        await self._writer.drain()

    async def _chunks(self, fault: Fault, piece: bytes) -> None:
        while piece:
            size = self._proxy.rng.choice(SIZES)
            part, piece = piece[:size], piece[size:]
            await self._send(fault, self._wire.send(h11.Data(part)) or b"")

    async def _send(self, fault: Fault, data: bytes) -> None:
        """Send `data`, or what of it comes before the cut."""
        if fault.cut_at is None or self._sent + len(data) <= fault.cut_at:
            self._sent += len(data)
            self._writer.write(data)
            await self._writer.drain()
            return
        place = max(fault.cut_at - self._sent, 0)
        if fault.inside_a_character:
            place = next((i + 1 for i in range(place, len(data)) if data[i] >= 0xC2), -1)
            if place < 0:
                self._writer.write(data)
                return
        whole = fault.how != "polite"  # the body may end within a line, but not its framing within a chunk
        if whole:
            self._writer.write(data[:place])
        with suppress(OSError):
            await self._writer.drain()
        await self._end(fault.how)

    async def _end(self, how: str) -> None:
        if how == "polite" and self._wire.our_state is h11.SEND_BODY:
            self._writer.write(self._wire.send(h11.EndOfMessage()) or b"")
            await self._writer.drain()
        if how == "stall" or (how == "half" and self._writer.can_write_eof()):
            if how == "half":
                self._writer.write_eof()
            await asyncio.Event().wait()  # until the client hangs up
        if how == "reset":
            plain = self._writer.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        raise _Cut

    async def _read(self) -> tuple[h11.Request, bytes] | None:
        head, body = None, bytearray()
        while True:
            event = self._wire.next_event()
            if event is h11.NEED_DATA:
                self._wire.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return head, bytes(body)
            else:
                return None


def _head(status: int) -> h11.Response:
    return h11.Response(
        status_code=status, headers=[("content-type", "application/json"), ("transfer-encoding", "chunked")]
    )


@asynccontextmanager
async def _ask(proxy: Proxy, head: h11.Request, body: bytes) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
    """Ask the server, on a connection of its own."""
    url = urlsplit(proxy.upstream)
    tls = _ANYBODY if url.scheme == "https" else None
    reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=tls)
    wire = h11.Connection(h11.CLIENT)
    drop = (b"host", b"accept-encoding", b"connection")
    fields = [(b"host", url.netloc.encode()), (b"connection", b"close")]
    fields += [(name, value) for name, value in head.headers if name.lower() not in drop]
    try:
        request = h11.Request(method=head.method, target=_sooner(head.target.decode(), proxy.slower), headers=fields)
        for event in (request, *([h11.Data(body)] if body else []), h11.EndOfMessage()):
            writer.write(wire.send(event) or b"")
        answer = await _event(wire, reader)
        yield answer.status_code, _body(wire, reader)
    finally:
        writer.transport.abort()


def _sooner(target: str, slower: float) -> str:
    path, _, query = target.partition("?")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    if "timeoutSeconds" in asked:
        asked["timeoutSeconds"] = str(max(int(int(asked["timeoutSeconds"]) / slower), 3))
    return f"{path}?{urlencode(asked)}" if asked else path


async def _event(wire: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    while (event := wire.next_event()) is h11.NEED_DATA:
        wire.receive_data(await reader.read(65536))
    return event


async def _body(wire: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while isinstance(event := await _event(wire, reader), h11.Data):
        yield bytes(event.data)
    if not isinstance(event, h11.EndOfMessage):
        raise ConnectionResetError("the server hung up")
