"""An API server whose watch cache lags: which reads are of the past, and which never are."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from reconciler.api.clock import SystemClock
from reconciler.kube.transport import JSON, MERGE_PATCH
from reconciler.sim import kinds
from reconciler.sim.past import Past
from reconciler.sim.requests import Request
from reconciler.sim.server import ApiServer, Knobs

NODES = "/api/v1/nodes"


class Cache:
    """A server with one node, whose cache stands still at the label `v=1` for the user "behind"."""

    def __init__(self, *, merges: bool = False) -> None:
        past = Past(horizon=self._horizon, merges=lambda user, kind: merges)
        self.server = ApiServer(clock=SystemClock(), rng=random.Random(1), knobs=Knobs(past=past))
        self._ask("POST", NODES, {"metadata": {"name": "a", "labels": {"v": "1"}}})
        self.stands_at: int | None = self.server.store.version

    def _horizon(self, user: str, kind: kinds.Kind) -> int | None:
        return self.stands_at if (user, kind) == ("behind", kinds.NODES) else None

    def label(self, value: str) -> int:
        """Another version of the node; the status of the answer."""
        return self._ask("PATCH", f"{NODES}/a", {"metadata": {"labels": {"v": value}}})[0]

    def catch_up(self) -> None:
        self.stands_at = None
        self.server.store.wake_all()

    def _ask(self, method: str, path: str, body: Any = None, user: str = "behind", **query: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        response = self.server.answer(
            Request(method, path, query, data, MERGE_PATCH if method == "PATCH" else JSON, user)
        )
        return response.status, json.loads(response.body)

    def read(self, path: str, user: str = "behind", **query: str) -> Any:
        return self._ask("GET", path, None, user, **query)[1]

    async def watched(self, **query: str) -> AsyncIterator[tuple[str, str]]:
        """Kind of event and label, as they come."""
        served = await self.server.watch(Request("GET", NODES, {"watch": "true", **query}, user="behind"))
        async with aclosing(served.chunks) as chunks:
            async for chunk in chunks:
                for line in chunk.splitlines():
                    event = json.loads(line)
                    yield event["type"], event["object"]["metadata"].get("labels", {}).get("v", "")


def _labels(answer: Any) -> list[str]:
    return [item["metadata"]["labels"]["v"] for item in answer["items"]]


def test_only_reads_with_resource_version_0_are_answered_from_the_cache() -> None:
    cache = Cache()
    assert cache.label("2") == 200
    assert cache.read(f"{NODES}/a")["metadata"]["labels"] == {"v": "2"}
    assert cache.read(f"{NODES}/a", resourceVersion="0")["metadata"]["labels"] == {"v": "1"}
    assert _labels(cache.read(NODES)) == ["2"]
    old = cache.read(NODES, resourceVersion="0", limit="1")
    assert (_labels(old), old["metadata"]["resourceVersion"]) == (["1"], str(cache.stands_at))
    assert _labels(cache.read(NODES, user="in front", resourceVersion="0")) == ["2"]


def test_a_write_goes_to_the_truth_and_its_precondition_with_it() -> None:
    cache = Cache()
    old = cache.read(f"{NODES}/a")["metadata"]["resourceVersion"]
    cache.label("2")
    body = json.dumps({"metadata": {"resourceVersion": old, "labels": {"v": "3"}}}).encode()
    answer = asyncio.run(cache.server.handle(Request("PATCH", f"{NODES}/a", {}, body, MERGE_PATCH, "behind")))
    assert answer.status == 409


@pytest.mark.parametrize(
    ("merges", "seen"),
    [
        (False, [("ADDED", "1"), ("MODIFIED", "2"), ("MODIFIED", "3")]),
        (True, [("ADDED", "1"), ("MODIFIED", "3")]),
    ],
)
async def test_a_watch_is_shown_what_it_missed_when_the_cache_has_caught_up(
    merges: bool, seen: list[tuple[str, str]]
) -> None:
    cache = Cache(merges=merges)
    events = cache.watched(resourceVersion="0")
    found = [await anext(events)]
    next_one = asyncio.ensure_future(anext(events))
    for value in ("2", "3"):
        cache.label(value)
        for _ in range(5):  # more turns of the loop than a delivery takes
            await asyncio.sleep(0)
    assert not next_one.done()
    cache.catch_up()
    found.append(await next_one)
    while len(found) < len(seen):
        found.append(await anext(events))
    assert found == seen


async def test_a_bookmark_of_a_lagging_watch_is_of_the_past_too() -> None:
    cache = Cache()
    cache.server.knobs.bookmark_seconds = 0.01
    cache.label("2")
    served = await cache.server.watch(
        Request("GET", NODES, {"watch": "true", "resourceVersion": "0", "allowWatchBookmarks": "true"}, user="behind")
    )
    async with aclosing(served.chunks) as chunks:
        await anext(chunks)
        bookmark = json.loads(await anext(chunks))
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(cache.stands_at)
