"""An informer: a store kept equal to the server's collection, and handlers told of every change.

A new list is diffed against the store, so deletes that happened while nobody watched are delivered.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from reconciler.api.clock import Clock
from reconciler.kube.client import Client, selectors
from reconciler.kube.errors import ApiError, Forbidden, Gone, TransportError, make, retry_after
from reconciler.kube.reflector import SILENCE, WATCH_TIMEOUT, Input, Phase, State, delay, step
from reconciler.kube.resources import Resource
from reconciler.kube.store import HasMeta, Indexer, Store, key_of, version_of
from reconciler.kube.transport import ByteStream

log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMeta)
Handler = Callable[[str, Any, Any, bool], None]
"""`(kind, old, new, initial)`: kind is added, modified or deleted; initial until the first list is through.

A write of ours whose answer was put into the store is told when its event comes, as modified with old = new.
What such a write made and nobody saw before it was gone is told as added and deleted. For one name the kinds
come in an order that can be: added, modified any number of times, deleted, all of one UID, in rising versions.
"""

LINE_MAX = 8 << 20
"""Bytes of one watch event; the API server's own limit for an object is 3 MiB (as JSON)."""
REFUSAL = 10.0
"""Seconds in which the text of a refused watch must be through."""
YIELD_EVERY = 200
"""Objects handled in one go before the event loop is let breathe."""


class InformerMetrics(Protocol):
    """What is counted; labels are the resource's plural only."""

    def event(self, resource: str, kind: str) -> None: ...
    def relist(self, resource: str, reason: str) -> None: ...
    def undecodable(self, resource: str) -> None: ...


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""


class _Envelope(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class Expired(Exception):
    """The version to watch from is gone, or not there yet."""


class Informer(Generic[T]):
    """`run` goes on until it is cancelled; `synced` is set after the first list."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        clock: Clock,
        rng: random.Random,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Indexer] | None = None,
        metrics: InformerMetrics | None = None,
    ) -> None:
        self.store: Store[T] = Store(indexers)
        self.synced = asyncio.Event()
        self.refused = ""
        """The API server's words while it forbids to list or watch; empty while it does not."""
        self.last_activity = clock.monotonic()
        """Monotonic seconds of the last byte or list; before the first one, of the beginning."""
        self._client = client
        self._resource = resource
        self._clock = clock
        self._rng = rng
        self._namespace = namespace
        self._query = selectors(label_selector, field_selector)
        self._handlers: list[Handler] = []
        self._on_refused: Callable[[str, str], None] = lambda plural, words: None
        self._metrics = metrics
        self._state = State()
        self._version = ""
        self._asked = 0.0
        """Seconds that the answer to the phase under way asked to wait."""
        self._events = msgspec.json.Decoder(_Event)
        self._objects = msgspec.json.Decoder(resource.type)
        self._envelopes = msgspec.json.Decoder(_Envelope)

    @property
    def plural(self) -> str:
        return self._resource.plural

    def silence(self) -> float:
        """Seconds since anything was heard: a list, an event, a bookmark."""
        return self._clock.monotonic() - self.last_activity

    def add_handler(self, handler: Handler) -> None:
        """Handlers are synchronous and must not raise: they put keys into queues."""
        self._handlers.append(handler)

    def on_refused(self, told: Callable[[str, str], None]) -> None:
        """`told(plural, words)` is called when a right to list or watch is missing, with "" when it is not any more."""
        self._on_refused = told

    def _refusal(self, words: str) -> None:
        if words != self.refused:
            self.refused = words
            self._on_refused(self._resource.plural, words)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(delay(self._state, self._rng))
            begun = self._clock.monotonic()
            self._asked = 0.0
            came = await (self._list() if self._state.phase is Phase.LIST else self._watch())
            lasted = self._clock.monotonic() - begun
            self._state = step(self._state, came, version=self._version, lasted=lasted, asked=self._asked)

    def _heed(self, error: Exception) -> None:
        self._asked = (error.retry_after if isinstance(error, ApiError) else None) or 0.0

    # --- list ---

    async def _list(self) -> Input:
        try:
            items, version = await self._client.raw_list(self._resource, self._namespace, query=self._query)
            await self._replace(items, version)
        except Forbidden as error:
            log.error("list is forbidden", extra={"resource": self._resource.plural, "error": error.message})
            self._refusal(error.message)
            return Input.LIST_FAILED
        except (ApiError, TransportError, msgspec.MsgspecError) as error:
            log.warning("list failed", extra={"resource": self._resource.plural, "error": str(error)})
            self._heed(error)
            return Input.LIST_FAILED
        self._version = version
        self.last_activity = self._clock.monotonic()
        self.synced.set()
        return Input.LISTED

    async def _replace(self, items: list[msgspec.Raw], version: str) -> None:
        listed = int(version) if version.isdigit() else 0
        # the server's store was put back to a backup: nothing that we hold is newer than what is there
        restored = self._version.isdigit() and listed < int(self._version)
        self.store.version = listed
        gone = self.store.keys()
        initial = not self.synced.is_set()
        for count, raw in enumerate(items):
            if count % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            obj = self._decode(raw)
            if obj is None:
                gone.discard(self._key_of_raw(raw))
                continue
            gone.discard(key_of(obj))
            if restored:
                self._put(obj, initial)
            else:
                self._merge(obj, initial)
        for namespace, name in sorted(gone):
            old = self.store.get(name, namespace)
            if old is not None and (
                restored or version_of(old) <= listed
            ):  # newer: our own write, made after the list was
                self._remove((namespace, name))

    # --- watch ---

    async def _watch(self) -> Input:
        seconds = int(WATCH_TIMEOUT * (1 + self._rng.random()))
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        try:
            async with self._client.watch(self._resource, self._namespace, query) as stream:
                await self._check(stream)
                self._refusal("")
                async with aclosing(_lines(stream)) as lines:
                    async for line in lines:
                        self._handle(line)
        except (Expired, Gone) as error:
            if self._metrics is not None:
                self._metrics.relist(self._resource.plural, "expired")
            log.info("watch expired", extra={"resource": self._resource.plural, "error": str(error)})
            return Input.EXPIRED
        except Forbidden as error:
            log.error("watch is forbidden", extra={"resource": self._resource.plural, "error": error.message})
            self._refusal(error.message)
            return Input.BROKEN
        except TimeoutError:
            log.info("watch is silent", extra={"resource": self._resource.plural})
            return Input.SILENT
        except (ApiError, TransportError, msgspec.MsgspecError) as error:
            log.info("watch broke", extra={"resource": self._resource.plural, "error": str(error)})
            self._heed(error)
            return Input.BROKEN
        return Input.ENDED

    async def _check(self, stream: ByteStream) -> None:
        if stream.status < 400:
            return
        async with asyncio.timeout(REFUSAL):
            body = b"".join([chunk async for chunk in stream])
        status = _Status(message=body[:200].decode(errors="replace"))
        with suppress(msgspec.MsgspecError):  # not a Status: the text says what it was
            status = msgspec.json.decode(body, type=_Status)
        raise make(stream.status, status.reason, status.message, retry_after(stream.headers))

    def _handle(self, line: bytes) -> None:
        self.last_activity = self._clock.monotonic()
        event = self._events.decode(line)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=_Status)
            if status.code in (410, 504):
                raise Expired(status.message)
            raise make(status.code or 500, status.reason, status.message)
        version = self._envelopes.decode(event.object).metadata.resource_version
        if event.type != "BOOKMARK":
            self._take(event)
        if version:
            self._version = version
            self.store.version = max(self.store.version, int(version) if version.isdigit() else 0)

    def _take(self, event: _Event) -> None:
        if self._metrics is not None:
            self._metrics.event(self._resource.plural, event.type)
        obj = self._decode(event.object)
        if event.type == "DELETED":
            self._deleted(event.object, obj)
        elif obj is not None:
            self._merge(obj, initial=False)

    def _deleted(self, raw: msgspec.Raw, obj: T | None) -> None:
        key = self._key_of_raw(raw)
        stored = self.store.get(key[1], key[0])
        if stored is None or obj is None or stored.metadata.uid == obj.metadata.uid:
            self._remove(key)
            return
        told = self.store.told(key)  # a write has put its successor in already
        if told is not None and told.metadata.uid == obj.metadata.uid:
            self.store.part(key)
            self._tell("deleted", told, None, False)

    # --- store and handlers ---

    def _merge(self, obj: T, initial: bool) -> None:
        """What the server showed; the store may be ahead of it by writes of ours."""
        old = self.store.get(obj.metadata.name, obj.metadata.namespace)
        if old is None or version_of(old) < version_of(obj):
            self._put(obj, initial)
        elif old.metadata.uid == obj.metadata.uid:
            self._written(old, initial)
        # else the store has its successor, which is told of when its own event comes

    def _put(self, obj: T, initial: bool) -> None:
        told = self.store.settle(key_of(obj))
        old = self.store.put(obj)
        self._tell_change(told, old, obj, initial)

    def _written(self, obj: T, initial: bool) -> None:
        """The store holds `obj` by a write of ours; the handlers hear of it now, if they have not yet."""
        self._tell_change(self.store.settle(key_of(obj)), obj, obj, initial)

    def _remove(self, key: tuple[str, str]) -> None:
        told = self.store.settle(key)
        old = self.store.remove(key)
        if old is None:
            return
        if told is None or told.metadata.uid != old.metadata.uid:  # only a write of ours has known it
            self._tell_change(told, None, old, False)
        self._tell("deleted", old, None, False)

    def _tell_change(self, told: T | None, old: T | None, new: T, initial: bool) -> None:
        """`told` is what handlers know, `old` what the store held: newer after a write of ours."""
        if told is not None and told.metadata.uid == new.metadata.uid:
            self._tell("modified", old, new, initial)
            return
        if told is not None:
            self._tell("deleted", told, None, False)
        self._tell("added", None, new, initial)

    def _tell(self, kind: str, old: T | None, new: T | None, initial: bool) -> None:
        for handler in self._handlers:
            handler(kind, old, new, initial)

    def _decode(self, raw: msgspec.Raw) -> T | None:
        """None for an object that cannot be used; one that can be salvaged is counted all the same."""
        try:
            return self._objects.decode(raw)
        except msgspec.MsgspecError as error:
            log.error("object cannot be decoded", extra={"resource": self._resource.plural, "error": str(error)})
            if self._metrics is not None:
                self._metrics.undecodable(self._resource.plural)
        try:
            return self._resource.decode(raw)
        except msgspec.MsgspecError:
            return None

    def _key_of_raw(self, raw: msgspec.Raw) -> tuple[str, str]:
        meta = self._envelopes.decode(raw).metadata
        return (meta.namespace, meta.name)


async def _lines(stream: ByteStream) -> AsyncGenerator[bytes, None]:
    """The lines of a stream. Raises TimeoutError when it is silent for too long."""
    buffer = bytearray()
    chunks = aiter(stream)
    while True:
        try:
            async with asyncio.timeout(SILENCE):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        buffer += chunk
        *lines, rest = bytes(buffer).split(b"\n") if b"\n" in chunk else (bytes(buffer),)
        buffer = bytearray(rest)
        if len(buffer) > LINE_MAX:
            raise TransportError(f"a watch event of more than {LINE_MAX} bytes")
        for line in lines:
            if line.strip():
                yield line
