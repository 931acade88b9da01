"""What the embedded API server does beside answering as the real one does (`tests/conformance`): its knobs."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from reconciler.api.clock import SystemClock
from reconciler.kube.transport import TransportError
from reconciler.sim.failures import ApiFailure
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer, Knobs, Trouble

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"
RUNTIMES = "/apis/runtime-reconciler.io/v1alpha1/noderuntimes"
MAPS = "/api/v1/namespaces/ns/configmaps"


class Api:
    """Short calls with JSON in and out."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.transport = MemoryTransport(server, user="test")

    async def __call__(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        response = await self.transport.request(method, path, query=query, body=data, content_type=kind)
        return response.status, json.loads(response.body)

    async def events(self, path: str, **query: str) -> AsyncIterator[tuple[str, Any]]:
        async with self.transport.stream(path, query=query, timeout=5) as stream:
            async for chunk in stream:
                for line in chunk.splitlines():
                    event = json.loads(line)
                    yield event["type"], event["object"]


@pytest.fixture
def api() -> Api:
    return Api(ApiServer(clock=SystemClock(), rng=random.Random(1)))


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


async def test_bookmarks_carry_the_newest_version(api: Api) -> None:
    api.server.knobs.bookmark_seconds = 0.0
    await api("POST", NODES, node("a"))
    watching = api.events(PODS, resourceVersion="1", allowWatchBookmarks="true")
    kind, obj = await anext(watching)
    assert (kind, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", "2")


@pytest.mark.parametrize("in_stream", [True, False])
async def test_a_watch_from_a_compacted_version_is_410_by_either_road(api: Api, in_stream: bool) -> None:
    api.server.knobs.expired_in_stream = in_stream
    await api("POST", NODES, node("a"))
    api.server.store.compact()
    async with api.transport.stream(NODES, query={"resourceVersion": "1"}, timeout=5) as stream:
        body = json.loads(b"".join([chunk async for chunk in stream]))
        assert stream.status == (200 if in_stream else 410)
    assert (body["object"]["code"] if in_stream else body["code"]) == 410


async def test_a_broken_watch_ends(api: Api) -> None:
    watching = asyncio.ensure_future(anext(api.events(NODES, resourceVersion="1"), None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    api.server.break_watches()
    assert await watching is None


async def test_troubles_refuse_and_drop(api: Api) -> None:
    api.server.knobs = Knobs(trouble=lambda _: Trouble(failure=ApiFailure(503, "ServiceUnavailable", "no")))
    assert (await api("GET", NODES))[0] == 503
    api.server.knobs = Knobs(trouble=lambda _: Trouble(drop_after=True))
    with pytest.raises(TransportError):
        await api("POST", NODES, node("a"))
    api.server.knobs = Knobs()
    assert (await api("GET", f"{NODES}/a"))[0] == 200
