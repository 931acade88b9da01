"""The informer: its store equals the server's collection, whatever the watch does."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from reconciler.api.meta import Node
from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.resources import NODES
from reconciler.kube.transport import TransportError
from reconciler.sim.clock import VirtualClock, run


class Counter:
    def __init__(self) -> None:
        self.relists: list[str] = []
        self.skipped = 0

    def event(self, resource: str, kind: str) -> None:
        """Not looked at here."""

    def relist(self, resource: str, reason: str) -> None:
        self.relists.append(reason)

    def undecodable(self, resource: str) -> None:
        self.skipped += 1


class Watcher:
    """An informer on a scripted transport, and what its handlers heard."""

    def __init__(self, transport: Any) -> None:
        self.heard: list[tuple[str, str, bool]] = []
        self.counter = Counter()
        self.informer: Informer[Node] = Informer(
            Client(transport), NODES, clock=VirtualClock(), rng=random.Random(3), metrics=self.counter
        )
        self.informer.add_handler(self._hear)

    def _hear(self, kind: str, old: Node | None, new: Node | None, initial: bool) -> None:
        self.heard.append((kind, (new or old or Node()).metadata.name, initial))

    def versions(self) -> dict[str, str]:
        return {n.metadata.name: n.metadata.resource_version for n in self.informer.store.list()}


def watch_for(seconds: float, transport: Any, after: Callable[[Watcher], object] | None = None) -> Watcher:
    """Run an informer for virtual seconds."""

    async def main() -> Watcher:
        watcher = Watcher(transport)
        if after is not None:
            asyncio.get_running_loop().call_later(0.5, after, watcher)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await watcher.informer.run()
        return watcher

    result: Coroutine[Any, Any, Watcher] = main()
    return run(result)


def test_a_list_then_events(script: Any) -> None:
    transport = script.Transport([script.listed(5, script.node("a", 3), script.node("b", 4))])
    transport.watches = [
        script.Watch(
            [
                {"type": "MODIFIED", "object": script.node("a", 6)},
                {"type": "ADDED", "object": script.node("c", 7)},
                {"type": "DELETED", "object": script.node("b", 8)},
                1e9,
            ]
        )
    ]
    watcher = watch_for(1, transport)
    assert watcher.versions() == {"a": "6", "c": "7"}
    assert watcher.heard == [
        ("added", "a", True),
        ("added", "b", True),
        ("modified", "a", False),
        ("added", "c", False),
        ("deleted", "b", False),
    ]


def test_the_next_watch_begins_at_the_newest_bookmark(script: Any) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}
    transport = script.Transport([script.listed(5)], [script.Watch([2.0, bookmark])])
    watch_for(10, transport)
    assert transport.watched() == [(0.0, "5"), (2.0, "99")]


def expired_by_status(script: Any) -> Any:
    return script.Watch([script.status(410, "Expired")], 410)


def expired_in_stream(script: Any) -> Any:
    return script.Watch([{"type": "ERROR", "object": script.status(410, "Expired")}])


def too_large(script: Any) -> Any:
    return script.Watch([{"type": "ERROR", "object": script.status(504, "Timeout", "Too large resource version: 9")}])


@pytest.mark.parametrize("road", [expired_by_status, expired_in_stream, too_large])
def test_an_expired_version_leads_to_a_new_list_that_delivers_lost_deletes(
    script: Any, road: Callable[[Any], Any]
) -> None:
    transport = script.Transport(
        [
            script.listed(5, script.node("a", 3), script.node("b", 4)),
            script.listed(9, script.node("a", 8), script.node("c", 9)),
        ],
        [road(script)],
    )
    watcher = watch_for(10, transport)
    assert watcher.versions() == {"a": "8", "c": "9"}
    assert watcher.heard[2:] == [("modified", "a", False), ("added", "c", False), ("deleted", "b", False)]
    assert watcher.counter.relists == ["expired"]
    assert transport.watched()[-1][1] == "9"


def test_a_node_made_anew_under_its_name_is_a_delete_and_an_add(script: Any) -> None:
    transport = script.Transport([script.listed(5, script.node("a", 3))])
    transport.watches = [script.Watch([{"type": "MODIFIED", "object": script.node("a", 9, uid="other")}, 1e9])]
    watcher = watch_for(1, transport)
    assert watcher.heard == [("added", "a", True), ("deleted", "a", False), ("added", "a", False)]


def test_a_silent_watch_is_given_up_after_70_seconds_for_a_new_list(script: Any) -> None:
    transport = script.Transport([script.listed(5), script.listed(6)])
    watch_for(72, transport)
    (first, of_first), (second, of_second) = transport.watched()
    assert (first, of_first, of_second, transport.lists()) == (0.0, "5", "6", 2)
    assert 70.0 <= second <= 70.8


def test_a_refused_watch_backs_off(script: Any) -> None:
    transport = script.Transport([script.listed(5)])
    transport.watches = [script.Watch([script.status(403, "Forbidden")], 403) for _ in range(1000)]
    watch_for(300, transport)
    assert 12 <= len(transport.watched()) <= 60
    assert transport.lists() == 1


def test_watches_that_end_at_once_do_not_spin(script: Any) -> None:
    transport = script.Transport([script.listed(5)], [script.Watch([]) for _ in range(1000)])
    watch_for(300, transport)
    assert len(transport.watched()) <= 60


def test_a_broken_connection_goes_on_from_the_last_event(script: Any) -> None:
    event = {"type": "ADDED", "object": script.node("a", 6)}
    transport = script.Transport([script.listed(5)], [script.Watch([event, TransportError("reset")])])
    watcher = watch_for(5, transport)
    assert [version for _, version in transport.watched()] == ["5", "6"]
    assert watcher.versions() == {"a": "6"}


def test_one_object_that_cannot_be_decoded_is_counted_and_skipped(script: Any) -> None:
    bad = {**script.node("bad", 6), "spec": {"taints": "none"}}
    transport = script.Transport([script.listed(5, {**bad}, script.node("a", 3))])
    transport.watches = [
        script.Watch([{"type": "MODIFIED", "object": bad}, {"type": "ADDED", "object": script.node("b", 7)}, 1e9])
    ]
    watcher = watch_for(1, transport)
    assert watcher.versions() == {"a": "3", "b": "7"}
    assert watcher.counter.skipped == 2
    assert len(transport.watched()) == 1


def test_our_own_write_is_not_undone_by_an_older_event(script: Any) -> None:
    older = {"type": "MODIFIED", "object": script.node("a", 6)}
    transport = script.Transport([script.listed(5, script.node("a", 3))], [script.Watch([1.0, older, 1e9])])
    watcher = watch_for(2, transport, lambda w: w.informer.store.apply_write(_node("a", "8")))
    assert watcher.versions() == {"a": "8"}
    assert watcher.heard[-1] == ("modified", "a", False)


def test_a_new_list_does_not_take_away_what_we_wrote_after_it(script: Any) -> None:
    transport = script.Transport(
        [script.listed(5, script.node("a", 3)), script.listed(6)],
        [script.Watch([1.0, {"type": "ERROR", "object": script.status(410, "Expired")}])],
    )
    watcher = watch_for(10, transport, lambda w: w.informer.store.apply_write(_node("new", "8")))
    assert watcher.versions() == {"new": "8"}


def test_a_failed_first_list_is_tried_until_it_works(script: Any) -> None:
    refused = [script.answer(500, script.status(500, "InternalError"))] * 3
    transport = script.Transport([*refused, script.listed(5, script.node("a", 3))])
    watcher = watch_for(30, transport)
    assert watcher.informer.synced.is_set()
    assert watcher.versions() == {"a": "3"}


def _node(name: str, version: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version}}, Node)


def test_a_watch_that_is_refused_waits_as_long_as_the_server_asks(script: Any) -> None:
    transport = script.Transport([script.listed(5)])
    transport.watches = [script.Watch([script.status(429, "TooManyRequests")], 429, {"retry-after": "7"})]
    watch_for(20, transport)
    begun = [when for when, _ in transport.watched()]
    assert begun[0] == 0.0
    assert 7.0 <= begun[1] <= 7.8


def test_a_list_that_is_refused_for_long_waits_so_and_no_longer_than_half_a_minute(script: Any) -> None:
    busy = [
        script.answer(503, script.status(503, "ServiceUnavailable"), {"retry-after": asked}) for asked in ("20", "3600")
    ]
    transport = script.Transport([*busy, script.listed(5)])
    watch_for(60, transport)
    first, second, third = (when for when, method, _, _ in transport.asked if method == "GET")
    assert first == 0.0
    assert 20.0 <= second <= 20.8
    assert 30.0 <= third - second <= 31.6


def test_an_outage_of_ten_minutes_costs_the_server_at_most_four_requests_a_list_and_sixty_lists(script: Any) -> None:
    """Of one kind: the backoff is 15 s on the mean once it has grown, and the first 30 s hold six tries."""
    transport = script.Transport()
    watch_for(600, transport)
    assert 80 <= transport.lists() <= 240
