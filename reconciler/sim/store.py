"""Objects and their history: what etcd is to the API server.

Every write takes the next version of one counter and leaves one event, so a list can be read as it was
at any version that is not compacted, and a watch is nothing but a cursor into the events.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from reconciler.sim.failures import expired
from reconciler.sim.kinds import Kind, Object

Key = tuple[str, str]
"""Namespace ("" when the kind has none) and name."""


@dataclass(frozen=True)
class Record:
    """One version of one object."""

    version: int
    object: Object
    raw: bytes
    """JSON of the object, encoded once for all who read it."""


@dataclass(frozen=True)
class Event:
    """`new` is None for a removal; `old` is None for a creation. `last` is the object as it went."""

    version: int
    key: Key
    old: Record | None
    new: Record | None
    last: Record


@dataclass
class _Table:
    records: dict[Key, Record] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    watchers: dict[asyncio.Event, None] = field(default_factory=dict)
    """In the order in which they came: a set's would be another in each process."""


class Store:
    """Not safe for threads; every call is done in one step of the event loop."""

    def __init__(self, *, history: int = 50_000) -> None:
        self.version = 1
        """Of the last write."""
        self.oldest = 0
        """Lists and watches from versions before this one are gone."""
        self._history = history
        self._tables: dict[Kind, _Table] = {}
        self.written: list[Callable[[Kind, Event], None]] = []
        """Told of each write, in order, before anybody else sees it."""

    def get(self, kind: Kind, key: Key) -> Record | None:
        return self._table(kind).records.get(key)

    def all(self, kind: Kind) -> Iterator[tuple[Key, Record]]:
        """Sorted by namespace and name."""
        records = self._table(kind).records
        for key in sorted(records):
            yield key, records[key]

    def put(self, kind: Kind, key: Key, obj: Object) -> Record:
        """Store `obj` under the next version, which is written into it."""
        record = self._record(obj)
        table = self._table(kind)
        old = table.records.get(key)
        table.records[key] = record
        self._publish(kind, table, Event(record.version, key, old, record, record))
        return record

    def remove(self, kind: Kind, key: Key) -> Record:
        """Take an object out. Raises KeyError. The answer is its last form under the version of the removal."""
        table = self._table(kind)
        old = table.records.pop(key)
        last = self._record(old.object)
        self._publish(kind, table, Event(last.version, key, old, None, last))
        return last

    def at(self, kind: Kind, version: int) -> list[tuple[Key, Record]]:
        """The collection as it was at `version`, sorted. Raises ApiFailure 410 when that is compacted."""
        if version < self.oldest:
            raise expired(version, self.oldest)
        table = self._table(kind)
        records = dict(table.records)
        for event in reversed(table.events[self._after(table, version) :]):
            if event.old is None:
                records.pop(event.key, None)
            else:
                records[event.key] = event.old
        return sorted(records.items())

    def since(self, kind: Kind, version: int) -> list[Event]:
        """Events after `version`, none when it is in the future. Raises ApiFailure 410 when some are compacted."""
        if version < self.oldest:
            raise expired(version, self.oldest)
        table = self._table(kind)
        return table.events[self._after(table, version) :]

    def compact(self, version: int | None = None) -> None:
        """Forget events up to `version` (all, when None)."""
        limit = self.version if version is None else min(version, self.version)
        self.oldest = max(self.oldest, limit)
        for table in self._tables.values():
            del table.events[: self._after(table, self.oldest)]

    def leap(self, versions: int) -> None:
        """As many writes of resources that nobody here has heard of."""
        self.version += versions

    def subscribe(self, kind: Kind) -> asyncio.Event:
        """An event that is set at every write of `kind`, until `unsubscribe`."""
        wake = asyncio.Event()
        self._table(kind).watchers[wake] = None
        return wake

    def unsubscribe(self, kind: Kind, wake: asyncio.Event) -> None:
        self._table(kind).watchers.pop(wake, None)

    def wake_all(self) -> None:
        """Let every watcher look again."""
        for table in self._tables.values():
            for wake in table.watchers:
                wake.set()

    def _table(self, kind: Kind) -> _Table:
        return self._tables.setdefault(kind, _Table())

    def _record(self, obj: Object) -> Record:
        self.version += 1
        meta: dict[str, Any] = {**obj["metadata"], "resourceVersion": str(self.version)}
        stamped = {**obj, "metadata": meta}
        return Record(self.version, stamped, msgspec.json.encode(stamped))

    def _publish(self, kind: Kind, table: _Table, event: Event) -> None:
        table.events.append(event)
        for told in self.written:
            told(kind, event)
        if len(table.events) > self._history:
            self.compact(table.events[len(table.events) // 2].version)
        for wake in table.watchers:
            wake.set()

    @staticmethod
    def _after(table: _Table, version: int) -> int:
        return bisect_right(table.events, version, key=lambda event: event.version)
