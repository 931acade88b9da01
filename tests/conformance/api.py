"""An API server under test, whichever it is: short calls with JSON in and out, and watches that can be awaited."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from reconciler.kube.transport import JSON, MERGE_PATCH, ByteStream, Transport

Object = dict[str, Any]
EVENT_WITHIN = 30.0
"""Seconds until an awaited event has come: the garbage collector of a busy machine takes a few."""
NODES = "/api/v1/nodes"
RUNTIMES = "/apis/runtime-reconciler.io/v1alpha1/noderuntimes"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
NAMESPACES = "/api/v1/namespaces"
CLUSTER_WIDE = (NODES, RUNTIMES, RUNTIME_CLASSES)


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    """Decoded JSON, or the text where it is none."""
    headers: Mapping[str, str]

    @property
    def said(self) -> tuple[int, str]:
        """Status and `reason` of a refusal."""
        return self.status, self.body["reason"]

    @property
    def meta(self) -> Object:
        found: Object = self.body["metadata"]
        return found

    @property
    def version(self) -> str:
        return str(self.meta["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """Of the objects of a list."""
        return [item["metadata"]["name"] for item in self.body["items"] or ()]


class Watch:
    """The events of one watch, one at a time."""

    def __init__(self, stream: ByteStream) -> None:
        self.status = stream.status
        self._lines = _lines(stream)

    async def next(self, *, within: float = EVENT_WITHIN) -> tuple[str, Object]:
        """Raises TimeoutError when none comes in so many seconds, StopAsyncIteration at the end of the stream."""
        async with asyncio.timeout(within):
            event = json.loads(await anext(self._lines))
        return event["type"], event["object"]

    async def take(self, count: int) -> list[tuple[str, Object]]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[tuple[str, Object]]:
        """Until the server ends it."""
        async with asyncio.timeout(EVENT_WITHIN):
            events = [json.loads(line) async for line in self._lines]
        return [(event["type"], event["object"]) for event in events]


class Api:
    """`name` is this test's own: its namespace, and the beginning of every name that the cluster has only once."""

    def __init__(self, transport: Transport, forget: Callable[[], Awaitable[None]]) -> None:
        self.transport = transport
        self.name = f"conformance-{uuid.uuid4().hex[:10]}"
        self.forget = forget
        """Compact the history away: versions before this moment are gone."""

    def of(self, plural: str, group: str = "", version: str = "v1") -> str:
        """The collection of a kind in this test's namespace."""
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return f"{root}/namespaces/{self.name}/{plural}"

    @property
    def maps(self) -> str:
        return self.of("configmaps")

    @property
    def pods(self) -> str:
        return self.of("pods")

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = JSON, raw: bytes | None = None, **query: str
    ) -> Answer:
        data = raw if body is None else json.dumps(body, separators=(",", ":")).encode()
        response = await self.transport.request(method, path, query=query, body=data, content_type=kind, timeout=20)
        try:
            decoded = json.loads(response.body)
        except ValueError:
            decoded = response.body.decode()
        return Answer(response.status, decoded, response.headers)

    async def get(self, path: str, **query: str) -> Answer:
        return await self("GET", path, **query)

    async def make(self, path: str, body: Object) -> Answer:
        """Create what must succeed."""
        answer = await self("POST", path, body)
        assert answer.status == 201, answer.body
        return answer

    async def patch(self, path: str, body: Any, kind: str = MERGE_PATCH, **query: str) -> Answer:
        return await self("PATCH", path, body, kind, **query)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self("DELETE", path, options or None)

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        async with self.transport.stream(path, query={"watch": "true", **query}, timeout=20) as stream:
            yield Watch(stream)

    async def until(self, path: str, holds: Callable[[Object | None], bool]) -> Object | None:
        """The object at `path` (None: it is gone) once `holds` says so; told by a watch. Raises TimeoutError."""
        collection, _, name = path.rpartition("/")
        chosen = {"fieldSelector": f"metadata.name={name}"}
        listed = await self.get(collection, **chosen)
        found: Object | None = next(iter(listed.body["items"] or ()), None)
        async with self.watch(collection, resourceVersion=listed.version, **chosen) as watch:
            while not holds(found):
                kind, obj = await watch.next()
                found = None if kind == "DELETED" else obj
        return found

    async def settled(self) -> None:
        """What controllers of a real cluster put into a new namespace is there."""
        for path in (f"{self.of('serviceaccounts')}/default", f"{self.maps}/kube-root-ca.crt"):
            await self.until(path, lambda obj: obj is not None)

    async def gone(self, path: str) -> None:
        await self.until(path, lambda obj: obj is None)

    async def clean_up(self) -> None:
        """Take away whatever this test has made."""
        for collection in CLUSTER_WIDE:
            await self._remove(collection, (await self.get(collection)).body["items"] or ())
        await self("DELETE", f"{NAMESPACES}/{self.name}")
        await self.transport.close()

    async def _remove(self, collection: str, items: Iterable[Object]) -> None:
        for meta in [item["metadata"] for item in items]:
            if meta["name"].startswith(self.name):
                await self.patch(f"{collection}/{meta['name']}", {"metadata": {"finalizers": None}})
                await self("DELETE", f"{collection}/{meta['name']}")


async def _lines(stream: ByteStream) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def named(name: str, **meta: Any) -> Object:
    """An object with metadata and nothing else: a ConfigMap, a Node."""
    return {"metadata": {"name": name, **meta}}


def pod(name: str, **spec: Any) -> Object:
    """One that no scheduler takes."""
    container = {"name": "main", "image": "none.invalid/none:1"}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": [container], **spec}}


def runtime(name: str, *, spec: Object | None = None, **meta: Any) -> Object:
    """A NodeRuntime; custom resources must say what they are."""
    head = {"apiVersion": "runtime-reconciler.io/v1alpha1", "kind": "NodeRuntime"}
    return {**head, "metadata": {"name": name, **meta}, "spec": spec or {}}


def owned(name: str, owner: Answer, *, block: bool = False) -> Object:
    """A ConfigMap that belongs to `owner`."""
    ref = {key: owner.body[key] for key in ("apiVersion", "kind")} | {key: owner.meta[key] for key in ("name", "uid")}
    return named(name, ownerReferences=[{**ref, "blockOwnerDeletion": block}])
