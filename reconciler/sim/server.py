"""The API server without a wire: a request in, an answer or a watch out.

Two front ends speak to it: `sim.http` over a socket and `sim.memory` in process.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from reconciler.api.clock import Clock
from reconciler.kube.transport import JSON, Response
from reconciler.sim import patching
from reconciler.sim.failures import (
    ApiFailure,
    Cause,
    bad_request,
    invalid_options,
    not_found,
    not_offered,
    token_expired,
    too_large,
    unsupported,
)
from reconciler.sim.flow import STRAIGHT, Dropped, Flow, carried
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.past import Past
from reconciler.sim.requests import Filter, Request, Target, number, rehearsed, target
from reconciler.sim.rights import Rights
from reconciler.sim.store import Event, Key, Record, Store
from reconciler.sim.writes import Manner, Writer

AUDIT_LENGTH = 200_000
"""Requests kept for whoever wants to count them."""
BODIES = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")
BOOKMARK_BEFORE_END = 2.0
"""Seconds: a watch that is about to end sends one (`cacher.go`)."""
WATCH_SECONDS = 1800.0
"""Of a watch that names no `timeoutSeconds`: the API server's `--min-request-timeout`."""


@dataclass(frozen=True)
class Audit:
    """One request that was answered."""

    user: str
    method: str
    target: Target
    status: int
    time: float
    """Monotonic seconds."""
    rehearsed: bool = False
    """A dry run: nothing was done."""


@dataclass(frozen=True)
class Trouble:
    """What befalls one request, in this order."""

    delay: float = 0.0
    """Seconds before anything is done."""
    failure: ApiFailure | None = None
    """Answered instead of doing it."""
    in_stream: bool = False
    """The failure of a watch is an ERROR event in a good stream, and not its HTTP status."""
    drop_before: bool = False
    page: int = 0
    """Objects in a page of a list at most, where pages are asked for; 0: as many as are asked for."""
    delay_after: float = 0.0
    """Seconds between having done it and the answer."""
    drop_after: bool = False


@dataclass
class Knobs:
    """How the server behaves where the real one may behave either way."""

    bookmark_seconds: float = 30.0
    expired_in_stream: bool = True
    """A watch from a compacted version: an ERROR event in a good stream, or else a plain 410."""
    trouble: Callable[[Request], Trouble | None] = lambda request: None
    schema: bool = True
    """Whether the CRD has a schema; False: the cluster has one of an older release that let anything through."""
    rights: Rights = field(default_factory=Rights)
    past: Past = field(default_factory=Past)
    _more: list[Callable[[Request], Trouble | None]] = field(default_factory=list)
    _flows: list[Callable[[Request], Flow | None]] = field(default_factory=list)

    @contextmanager
    def troubled(self, trouble: Callable[[Request], Trouble | None]) -> Iterator[None]:
        """Inside the block `trouble` decides as well; of several that begin one after the other, the first counts."""
        self._more.append(trouble)
        try:
            yield
        finally:
            self._more.remove(trouble)

    @contextmanager
    def flowing(self, flow: Callable[[Request], Flow | None]) -> Iterator[None]:
        """Inside the block `flow` says of each piece of a watch, open ones too, how it travels. The first counts."""
        self._flows.append(flow)
        try:
            yield
        finally:
            self._flows.remove(flow)

    def flow(self, request: Request) -> Flow:
        """How the next piece of this watch travels."""
        found = (flow(request) for flow in self._flows)
        return next((flow for flow in found if flow is not None), STRAIGHT)

    def befalls(self, request: Request) -> Trouble:
        """What is to befall this request."""
        found = (trouble(request) for trouble in (self.trouble, *self._more))
        return next((trouble for trouble in found if trouble is not None), Trouble())


class Served:
    """An answered watch: its status, and pieces that come until it ends. A refused one has its Status as one piece."""

    def __init__(self, status: int, chunks: AsyncGenerator[bytes]) -> None:
        self.status = status
        self.chunks = chunks


class ApiServer:
    """Raises Dropped where the client is to see its connection break."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        history: int = 50_000,
        knobs: Knobs | None = None,
        namespaces: frozenset[str] | None = None,
    ) -> None:
        """`namespaces`: those that are there without an object; None: every one is."""
        self.store = Store(history=history)
        self.knobs = knobs or Knobs()
        self.audit: deque[Audit] = deque(maxlen=AUDIT_LENGTH)
        self.asking: Request | None = None
        """The request that is being carried out: what is written meanwhile is written by it."""
        self.answered: list[Callable[[Request, int], None]] = []
        """Told of each request and its status, watches at their begin."""
        self._writer = Writer(self.store, clock=clock, rng=rng, namespaces=namespaces)
        self._generation = 0
        """Of watches; those of an older one are broken."""

    # --- requests ---

    async def handle(self, request: Request) -> Response:
        """Anything but a watch."""
        trouble = self.knobs.befalls(request)
        if trouble.delay:
            await asyncio.sleep(trouble.delay)
        if trouble.drop_before:
            raise Dropped(f"{request.method} {request.path}: dropped before it was done")
        try:
            if trouble.failure is not None:
                raise trouble.failure
            self.asking = request
            response = self.answer(_smaller(request, trouble.page) if trouble.page else request)
        except ApiFailure as failure:
            response = failure.response()
        finally:
            self.asking = None
        self._note(request, response.status)
        if trouble.delay_after:
            await asyncio.sleep(trouble.delay_after)
        if trouble.drop_after:
            raise Dropped(f"{request.method} {request.path}: dropped after it was done")
        return response

    def answer(self, request: Request) -> Response:
        """Do it, in one step. Raises ApiFailure."""
        if request.path in ("/healthz", "/readyz", "/livez"):
            return Response(200, {"content-type": "text/plain"}, b"ok")
        if request.path == "/version":
            return _json({"major": "1", "minor": "34", "gitVersion": "v1.34.0+sim"})
        goal = target(request.path)
        self.knobs.rights.check(request, goal)
        manner = self._manner(request)
        match request.method, bool(goal.name):
            case "GET", True:
                return _raw(self._get(goal, request))
            case "GET", False:
                return self._list(goal, request)
            case "POST", False:
                body = _object(request)
                if goal.kind.namespaced and not goal.namespace:
                    raise not_offered()
                return _written(self._writer.create(goal.kind, goal.namespace, body, manner), manner, 201)
            case "PUT", True:
                return self._replace(goal, _object(request), manner)
            case "PATCH", True:
                return _written(self._patch(goal, request, manner), manner)
            case "DELETE", True:
                return self._delete(goal, _object(request) if request.body else {}, manner)
        raise not_offered()

    async def watch(self, request: Request) -> Served:
        """Begin a watch; its end is the end of the chunks."""
        trouble = self.knobs.befalls(request)
        if trouble.delay:
            await asyncio.sleep(trouble.delay)
        if trouble.drop_before or trouble.drop_after:
            raise Dropped(f"watch {request.path}: dropped")
        try:
            if trouble.failure is not None:
                raise trouble.failure
            served = self._begin(request)
            return Served(served.status, carried(served.chunks, lambda: self.knobs.flow(request)))
        except ApiFailure as failure:
            if trouble.in_stream:
                self._note(request, 200)
                return Served(200, _once(_line("ERROR", msgspec.json.encode(failure.body()))))
            self._note(request, failure.status)
            return Served(failure.status, _once(msgspec.json.encode(failure.body())))

    def break_watches(self) -> None:
        """Cut every watch that is open now, as a restart of the server does."""
        self._generation += 1
        self.store.wake_all()

    # --- the parts ---

    def _get(self, goal: Target, request: Request) -> Record:
        record = self.store.get(goal.kind, _key(goal))
        if _cached(request):
            record = dict(self.knobs.past.collection(self.store, request.user, goal.kind)).get(_key(goal))
        if record is None:
            raise not_found(goal.kind, goal.name)
        return record

    def _manner(self, request: Request) -> Manner:
        validation = request.query.get("fieldValidation") or "Warn"
        return Manner(
            strict=validation == "Strict",
            warn=validation == "Warn",
            rehearsed=rehearsed(request),
            by_schema=self.knobs.schema,
        )

    def _patch(self, goal: Target, request: Request, manner: Manner) -> Record:
        kind = patching.kind_of(request.content_type, built_in=goal.kind.built_in)
        patch = request.json()

        def change(old: Object) -> Object:
            new: Object = patching.apply(old, patch, kind)
            return new

        return self._writer.update(goal.kind, _key(goal), goal.subresource, change, manner)

    def _replace(self, goal: Target, body: Object, manner: Manner) -> Response:
        if goal.kind.upsert and not goal.subresource and self.store.get(goal.kind, _key(goal)) is None:
            return _written(self._writer.create(goal.kind, goal.namespace, body, manner), manner, 201)
        return _written(self._writer.replace(goal.kind, _key(goal), goal.subresource, body, manner), manner)

    def _delete(self, goal: Target, options: Object, manner: Manner) -> Response:
        """What is gone is answered with a Status, what waits (and any pod) with its last form."""
        record = self._writer.delete(goal.kind, _key(goal), options, manner)
        gone = manner.rehearsed or self.store.get(goal.kind, _key(goal)) is None
        if goal.kind.graceful or not gone:
            return _raw(record)
        details = {"name": goal.name, "kind": goal.kind.plural, "uid": record.object["metadata"]["uid"]}
        if goal.kind.group:
            details["group"] = goal.kind.group
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return _json({**head, "details": details})

    def _at(self, goal: Target, request: Request) -> tuple[int, Key | None, list[tuple[Key, Record]]]:
        """Version, last key of the page before, and what there was then. Raises ApiFailure."""
        asked = request.query.get("resourceVersion", "")
        if token := request.query.get("continue"):
            if asked not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            version, after = _resume(token)
            if version < self.store.oldest and version:
                raise token_expired(_token(0, after))
            now = version or self.store.version
            return now, after, self.store.at(goal.kind, now)
        exact = _match(request) == "Exact"
        if (version := _version(asked)) > self.store.version:
            raise too_large(version, self.store.version)
        if exact:
            return version, None, self.store.at(goal.kind, version)
        return self.store.version, None, list(self.store.all(goal.kind))

    def _list(self, goal: Target, request: Request) -> Response:
        chosen = Filter(goal.kind, goal.namespace, request.query)
        version, after, pairs = self._at(goal, request)
        limit = max(number(request.query, "limit") or 0, 0)
        if _cached(request):  # the cache knows no pages
            version, limit = self.knobs.past.shown(self.store, request.user, goal.kind), 0
            pairs = self.knobs.past.collection(self.store, request.user, goal.kind)
        found = [(k, r) for k, r in pairs if (after is None or k > after) and chosen.holds(r.object)]
        page = found[:limit] if limit else found
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if len(page) < len(found):
            meta["continue"] = _token(version, page[-1][0])
            if chosen.everything:
                meta["remainingItemCount"] = len(found) - len(page)
        body = {"kind": f"{goal.kind.kind}List", "apiVersion": goal.kind.api_version, "metadata": meta}
        return _json({**body, "items": [msgspec.Raw(_item(goal.kind, record)) for _, record in page]})

    def _begin(self, request: Request) -> Served:
        goal = target(request.path)
        self.knobs.rights.check(request, goal)
        chosen = Filter(goal.kind, goal.namespace, request.query)
        asked = request.query.get("resourceVersion", "")
        if asked and not asked.isdigit():
            why = f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: parsing "{asked}": invalid syntax'
            raise ApiFailure(500, "", why)
        fresh = asked in ("", "0")
        version = self.store.version if fresh else int(asked)
        if asked == "0":
            version = self.knobs.past.shown(self.store, request.user, goal.kind)
        try:
            self.store.since(goal.kind, version)
        except ApiFailure as failure:
            if failure.status == 410 and not self.knobs.expired_in_stream:
                raise
            self._note(request, 200)
            return Served(200, _once(_line("ERROR", msgspec.json.encode(failure.body()))))
        there = self.store.at(goal.kind, version) if fresh else []
        seed = [record for _, record in there if chosen.holds(record.object)]
        self._note(request, 200)
        return Served(200, self._follow(goal.kind, chosen, version, seed, request))

    async def _follow(
        self, kind: Kind, chosen: Filter, version: int, seed: list[Record], request: Request
    ) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + float(request.query.get("timeoutSeconds") or WATCH_SECONDS)
        bookmarks = request.query.get("allowWatchBookmarks", "") == "true"
        generation = self._generation
        mark = self._next_mark(loop.time(), end)
        wake = self.store.subscribe(kind)
        try:
            for record in seed:
                yield _line("ADDED", record.raw)
            while generation == self._generation and loop.time() < end:
                wake.clear()
                try:
                    events, version = self.knobs.past.events(self.store, request.user, kind, version)
                except ApiFailure as failure:  # compacted under a client that reads too slowly
                    yield _line("ERROR", msgspec.json.encode(failure.body()))
                    return
                if lines := b"".join(_seen(chosen, event) for event in events):
                    yield lines
                if mark <= loop.time() < end:
                    mark = self._next_mark(loop.time(), end)
                    if bookmarks and version <= self.store.version:  # a watch from the future gets none
                        yield _line("BOOKMARK", _bookmark(kind, version))
                await _woken(wake, min(mark, end) - loop.time())
        finally:
            self.store.unsubscribe(kind, wake)

    def _next_mark(self, now: float, end: float) -> float:
        """When the next bookmark is due: regularly, and shortly before the end."""
        last = end - BOOKMARK_BEFORE_END
        return min(now + self.knobs.bookmark_seconds, last if now < last else end)

    def _note(self, request: Request, status: int) -> None:
        try:
            goal = target(request.path)
        except ApiFailure:
            return
        now = asyncio.get_running_loop().time()
        method = "WATCH" if request.is_watch else request.method
        dry = request.query.get("dryRun") == "All"
        self.audit.append(Audit(request.user, method, goal, status, now, dry))
        for told in self.answered:
            told(request, status)


def _cached(request: Request) -> bool:
    """A read that the watch cache may answer as it is."""
    return request.query.get("resourceVersion") == "0" and "continue" not in request.query


def _smaller(request: Request, page: int) -> Request:
    asked = int(request.query.get("limit", "0"))
    return replace(request, query={**request.query, "limit": str(min(asked, page))})


def _key(goal: Target) -> Key:
    return (goal.namespace, goal.name)


def _object(request: Request) -> Object:
    if request.content_type.partition(";")[0].strip() != JSON:
        raise unsupported(BODIES)
    body = request.json()
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    return body


def _match(request: Request) -> str:
    """`resourceVersionMatch`. Raises ApiFailure 422 where it has nothing to match."""
    match = request.query.get("resourceVersionMatch", "")
    if match and not request.query.get("resourceVersion"):
        says = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise invalid_options("ListOptions", Cause("resourceVersionMatch", says))
    return match


def _version(asked: str) -> int:
    """Of a list. Raises ApiFailure 400."""
    if asked and not asked.isdigit():
        why = f'Invalid value: "{asked}": strconv.ParseUint: parsing "{asked}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {why}")
    return int(asked or 0)


def _item(kind: Kind, record: Record) -> bytes:
    """One of a list: objects of built-in kinds do not say there what they are."""
    if not kind.built_in:
        return record.raw
    return msgspec.json.encode({k: v for k, v in record.object.items() if k not in ("kind", "apiVersion")})


def _written(record: Record, manner: Manner, status: int = 200) -> Response:
    warned = {"warning": ", ".join(f"299 - {_quoted(text)}" for text in manner.warnings)} if manner.warnings else {}
    return Response(status, {"content-type": JSON, **warned}, record.raw)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def _raw(record: Record, status: int = 200) -> Response:
    return Response(status, {"content-type": JSON}, record.raw)


def _json(body: Any) -> Response:
    return Response(200, {"content-type": JSON}, msgspec.json.encode(body))


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), raw)


def _bookmark(kind: Kind, version: int) -> bytes:
    meta = {"resourceVersion": str(version)}
    return msgspec.json.encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})


def _seen(chosen: Filter, event: Event) -> bytes:
    """The line of a watch: an object that comes into a selector is added, one that leaves it deleted, as it was."""
    before = event.old is not None and chosen.holds(event.old.object)
    after = event.new is not None and chosen.holds(event.new.object)
    if event.new is None:
        return _line("DELETED", event.last.raw) if before else b""
    if event.old is not None and not after:
        return _line("DELETED", _under(event.old.object, event.version)) if before else b""
    if not after:
        return b""
    return _line("MODIFIED" if before else "ADDED", event.new.raw)


def _under(obj: Object, version: int) -> bytes:
    """The object as it was, under a later version."""
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}})


async def _woken(wake: asyncio.Event, seconds: float) -> None:
    """Wait for it, but not for longer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(seconds, 0)):
            await wake.wait()


async def _once(chunk: bytes) -> AsyncGenerator[bytes]:
    yield chunk


def _token(version: int, key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *key])).decode()


def _resume(token: str) -> tuple[int, Key]:
    """The version and the last key of the page before."""
    try:
        version, namespace, name = msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str, str])
    except (ValueError, msgspec.MsgspecError) as error:
        raise bad_request("the continue token cannot be read") from error
    return version, (namespace, name)
