"""What the status page shows, version by version: the whole for who comes, the changes for who stays.

Nothing is looked at while nobody watches. All clients share one look and one ring of changes, so a further client
costs no memory; one that falls behind the ring is told to load the whole again.
"""

from __future__ import annotations

import asyncio
import gzip
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from reconciler.api.clock import Clock
from reconciler.api.overview import NodeRow, Overview, RuntimeRow, Stopped

PACE = 1.0
"""Seconds between two looks, at least."""
SHARE = 0.05
"""Part of the event loop's time that looks may take: with many nodes they become rarer."""
BEAT = 5.0
"""Seconds after which a silent stream says that it lives."""
CHANGES_MAX = 2_000
"""Rows kept in the ring; a larger change is a reason to load the whole, which is sent compressed."""
CLIENTS_MAX = 32
"""Open streams."""


class Replica(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who answers."""

    identity: str
    leads: bool
    """Whether it is the one that acts."""
    synced: bool
    """Whether it has seen everything at least once; until then what it shows is a part."""


class Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is no row of a node; small enough to be sent whole with every change."""

    version: str
    """Names this state of things; changes when anything but `time` does."""
    time: datetime
    """The controller's wall clock: browsers count from it, not from their own."""
    controller: Replica
    stopped: Stopped | None
    runtimes: tuple[RuntimeRow, ...]


class Document(Head, frozen=True, kw_only=True):
    """`/status.json`."""

    nodes: tuple[NodeRow, ...]


class Change(Head, frozen=True, kw_only=True):
    """From the version before to this one."""

    rows: tuple[NodeRow, ...]
    gone: tuple[tuple[str, str], ...]
    """Node and runtime."""


class Beat(msgspec.Struct, frozen=True):
    time: datetime


Look = Callable[[], Awaitable[tuple[Replica, Overview]]]
"""What can be seen now."""
_H = TypeVar("_H", bound=Head)


class _Top(msgspec.Struct, frozen=True):
    """What a head says beside version and time."""

    controller: Replica
    stopped: Stopped | None
    runtimes: tuple[RuntimeRow, ...]


class Full(Exception):
    """As many streams are open as may be."""


@dataclass(frozen=True)
class _Past:
    """A change that is kept for those who have not seen it."""

    number: int
    size: int
    """Rows."""
    event: bytes


@dataclass
class Whole:
    """The document of one version, encoded once for all."""

    version: str
    body: bytes
    _packed: asyncio.Future[bytes] | None = None

    async def packed(self) -> bytes:
        """`body` under gzip; made off the loop, which it would hold for a tenth of a second on a large cluster."""
        if self._packed is None:
            self._packed = asyncio.ensure_future(asyncio.to_thread(gzip.compress, self.body, 1))
        return await asyncio.shield(self._packed)


class Feed:
    """`look` is asked no more often than PACE and SHARE allow, and only for somebody who watches."""

    def __init__(self, look: Look, *, clock: Clock, rng: random.Random) -> None:
        self._look = look
        self._clock = clock
        self._epoch = f"{rng.getrandbits(32):08x}"
        """Tells this process' versions from another's."""
        self._number = 0
        """Of the version that was seen last."""
        self._top: _Top | None = None
        self._rows: dict[tuple[str, str], NodeRow] = {}
        self._time = clock.now()
        self._next_look = 0.0
        self._looking = asyncio.Lock()
        self._past: deque[_Past] = deque()
        self._floor = 0
        """The version that the ring begins after."""
        self._whole: Whole | None = None
        self.clients = 0

    async def whole(self) -> Whole:
        """The state of things, at most a look old."""
        top = await self._refresh()
        if self._whole is None or self._whole.version != self._version:
            document = self._headed(Document, top, nodes=tuple(self._rows.values()))
            self._whole = Whole(self._version, msgspec.json.encode(document))
        return self._whole

    def stream(self, since: str) -> AsyncGenerator[bytes, None]:
        """Server-sent events from version `since` on: `change`, `beat`, and `reload`, which is the last one.

        Raises Full.
        """
        if self.clients >= CLIENTS_MAX:
            raise Full
        return self._events(since)

    async def _events(self, since: str) -> AsyncGenerator[bytes, None]:
        if self.clients >= CLIENTS_MAX:  # several were let in before the first of them began
            return
        self.clients += 1
        try:
            yield self._beat()
            spoke = self._clock.monotonic()
            seen = self._number_of(since)
            while True:
                await self._refresh()
                if seen < self._floor:
                    yield _event("reload", b"{}")
                    return
                for past in [p for p in self._past if p.number > seen]:
                    yield past.event
                    seen, spoke = past.number, self._clock.monotonic()
                if self._clock.monotonic() - spoke >= BEAT:
                    yield self._beat()
                    spoke = self._clock.monotonic()
                await asyncio.sleep(min(max(self._next_look - self._clock.monotonic(), PACE / 10), BEAT))
        finally:
            self.clients -= 1

    def _beat(self) -> bytes:
        return _event("beat", msgspec.json.encode(Beat(self._clock.now())))

    @property
    def _version(self) -> str:
        return f"{self._epoch}-{self._number}"

    def _number_of(self, version: str) -> int:
        """-1 for what is no version of ours."""
        epoch, _, number = version.rpartition("-")
        known = epoch == self._epoch and number.isdecimal() and int(number) <= self._number
        return int(number) if known else -1

    async def _refresh(self) -> _Top:
        """Look again if it is time."""
        async with self._looking:
            begun = self._clock.monotonic()
            if self._top is not None and begun < self._next_look:
                return self._top
            replica, overview = await self._look()
            top = _Top(replica, overview.stopped, overview.runtimes)
            self._time = overview.time
            self._take(top, overview.nodes)
            ended = self._clock.monotonic()
            self._next_look = ended + max(PACE, (ended - begun) / SHARE)
            return top

    def _take(self, top: _Top, nodes: tuple[NodeRow, ...]) -> None:
        rows = {(row.node, row.runtime): row for row in nodes}
        changed = tuple(row for key, row in rows.items() if self._rows.get(key) != row)
        gone = tuple(key for key in self._rows if key not in rows)
        first = self._top is None
        if not (first or changed or gone or top != self._top):
            return
        self._top, self._rows = top, rows
        self._number += 1
        if first or len(changed) + len(gone) > CHANGES_MAX:
            self._past.clear()
            self._floor = self._number
            return
        self._remember(self._headed(Change, top, rows=changed, gone=gone), size=len(changed) + len(gone) + 1)

    def _remember(self, change: Change, *, size: int) -> None:
        event = _event("change", msgspec.json.encode(change), version=change.version)
        self._past.append(_Past(self._number, size, event))
        while sum(p.size for p in self._past) > CHANGES_MAX:
            self._floor = self._past.popleft().number

    def _headed(self, kind: type[_H], top: _Top, **rest: object) -> _H:
        return kind(
            version=self._version,
            time=self._time,
            controller=top.controller,
            stopped=top.stopped,
            runtimes=top.runtimes,
            **rest,
        )


def _event(kind: str, data: bytes, *, version: str = "") -> bytes:
    """`data` is JSON on one line."""
    identity = f"id: {version}\n".encode() if version else b""
    return identity + f"event: {kind}\ndata: ".encode() + data + b"\n\n"
