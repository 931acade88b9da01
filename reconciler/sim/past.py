"""What an API server shows of the past: one of several behind a load balancer, whose watch cache lags.

Its watches lag, and its reads with `resourceVersion=0`, which the cache answers as it is. Reads without a version
are as fresh as etcd, and writes go there: both are never of the past (`k8s.io/apiserver/pkg/storage/cacher`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reconciler.sim.kinds import Kind
from reconciler.sim.store import Event, Key, Record, Store


@dataclass
class Past:
    """Whoever changes what one of these answers wakes the watches (`Store.wake_all`)."""

    horizon: Callable[[str, Kind], int | None] = lambda user, kind: None
    """The last version of `kind` that `user` is shown; None: the last one that there is."""
    merges: Callable[[str, Kind], bool] = lambda user, kind: False
    """Whether changes of one object that are to be shown at once are shown as one: as to a client that lists anew."""

    def shown(self, store: Store, user: str, kind: Kind) -> int:
        """The version of the cache that `user` reads from."""
        limit = self.horizon(user, kind)
        return store.version if limit is None else min(limit, store.version)

    def collection(self, store: Store, user: str, kind: Kind) -> list[tuple[Key, Record]]:
        """What the cache holds. Raises ApiFailure 410 when that is compacted."""
        return store.at(kind, self.shown(store, user, kind))

    def events(self, store: Store, user: str, kind: Kind, after: int) -> tuple[list[Event], int]:
        """What a watch at `after` is shown next, and the version that it is at then. Raises ApiFailure 410."""
        shown = max(self.shown(store, user, kind), after)
        events = [event for event in store.since(kind, after) if event.version <= shown]
        return (merged(events) if self.merges(user, kind) else events), shown


def merged(events: Iterable[Event]) -> list[Event]:
    """One event for each object, in the order of the last ones: what came of all of its changes."""
    by_key: dict[Key, Event] = {}
    for event in events:
        first = by_key.pop(event.key, event)
        by_key[event.key] = Event(event.version, event.key, first.old, event.new, event.last)
    return list(by_key.values())
