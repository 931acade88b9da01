"""A transport that can be cut off from its server, whatever carries it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from reconciler.kube.transport import JSON, ByteStream, Response, Transport, TransportError


@dataclass
class Taps:
    """Told of what goes over links, in order."""

    sent: list[Callable[[str, str, str, Mapping[str, str], bytes | None], None]] = field(default_factory=list)
    """User, method, path, query and body of each request, as it leaves."""
    heard: list[Callable[[str, str, str, bytes], None]] = field(default_factory=list)
    """User, method (`WATCH` for a piece of one), path and bytes of what arrives, of what was answered well."""


class Link:
    """While `cut` or unplugged, requests fail at once and answers are lost; watches that are open then die without
    a word: a connection that has lost bytes brings nothing more, also when the link is back.

    While stalled, requests are on their way: they arrive when it is over, also those that their sender has given up,
    as bytes in a socket's buffer do.
    """

    def __init__(self, inner: Transport, *, user: str = "", taps: Taps | None = None) -> None:
        self._inner = inner
        self._user = user
        self._taps = taps or Taps()
        self._cut = False
        self._unplugged = 0
        """How many have unplugged it and not plugged it in again."""
        self._deaths = 0
        """How often the watches that were open have died."""
        self.stall_at: Callable[[str, str, bytes | None], bool] = lambda method, path, body: False
        """The first request that it holds for stalls the link, and is held up itself."""
        self._open = asyncio.Event()
        self._open.set()
        self._underway: set[asyncio.Task[Response]] = set()

    @property
    def cut(self) -> bool:
        """Its process is dead, or its machine is off."""
        return self._cut

    @cut.setter
    def cut(self, cut: bool) -> None:
        self._cut = cut
        if cut:
            self.kill_watches()

    @property
    def passes(self) -> bool:
        return not self._cut and not self._unplugged

    def unplug(self) -> None:
        """The network is away, until as many have called `plug`."""
        self._unplugged += 1
        self.kill_watches()

    def plug(self) -> None:
        self._unplugged -= 1

    def stall(self) -> None:
        self.stall_at = lambda method, path, body: False
        self._open.clear()

    def kill_watches(self) -> None:
        """Those that are open die without a word: they bring nothing more and do not end. Requests go through."""
        self._deaths += 1

    @property
    def deaths(self) -> int:
        return self._deaths

    @property
    def stalled(self) -> bool:
        return not self._open.is_set()

    def resume(self) -> None:
        self._open.set()

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
        for told in self._taps.sent:
            told(self._user, method, path, query or {}, body)
        if self._open.is_set() and self.stall_at(method, path, body):
            self.stall()
        if self._open.is_set():
            response = await self._inner.request(
                method, path, query=query, body=body, content_type=content_type, timeout=timeout
            )
        else:
            response = await self._late(method, path, query, body, content_type, timeout)
        self._check()
        if response.status < 400:
            self.hear(method, path, response.body)
        return response

    async def _late(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str, timeout: float
    ) -> Response:
        sending = asyncio.ensure_future(self._arrive(method, path, query, body, kind, timeout))
        self._underway.add(sending)
        sending.add_done_callback(self._arrived)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(sending)
        except TimeoutError as error:
            raise TransportError(f"{method} {path}: no answer within {timeout} s") from error

    async def _arrive(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, kind: str, timeout: float
    ) -> Response:
        await self._open.wait()
        return await self._inner.request(method, path, query=query, body=body, content_type=kind, timeout=timeout)

    def _arrived(self, done: asyncio.Task[Response]) -> None:
        self._underway.discard(done)
        if not done.cancelled():
            done.exception()

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncGenerator[ByteStream]:
        self._check()
        async with self._inner.stream(path, query=query, timeout=timeout) as stream:
            yield _Stream(stream, self, path)

    def hear(self, method: str, path: str, body: bytes) -> None:
        for told in self._taps.heard:
            told(self._user, method, path, body)

    async def passable(self) -> None:
        """Returns when nothing is held up."""
        await self._open.wait()

    async def close(self) -> None:
        for task in [*self._underway]:
            task.cancel()
        await self._inner.close()

    def _check(self) -> None:
        if not self.passes:
            raise TransportError("connection refused: the link is cut")


class _Stream:
    def __init__(self, inner: ByteStream, link: Link, path: str) -> None:
        self.status = inner.status
        self.headers = inner.headers
        self._inner = inner
        self._link = link
        self._path = path
        self._deaths = link.deaths

    async def __aiter__(self) -> AsyncIterator[bytes]:
        broken: TransportError | None = None
        try:
            async for chunk in self._inner:
                await self._link.passable()
                if self._dead:
                    break
                self._link.hear("WATCH", self._path, chunk)
                yield chunk
        except TransportError as error:
            broken = error
        await self._link.passable()
        if self._dead:  # its end is lost like all the rest
            await asyncio.get_running_loop().create_future()
        if broken is not None:
            raise broken

    @property
    def _dead(self) -> bool:
        return self._link.deaths != self._deaths
