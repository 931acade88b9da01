"""A local copy of a collection, with indexes. Synchronous; one event loop owns it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from reconciler.api.meta import ObjectMeta


class HasMeta(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=HasMeta)
Key = tuple[str, str]
Indexer = Callable[[Any], Iterable[str]]


def key_of(obj: HasMeta) -> Key:
    """`(namespace, name)`"""
    return (obj.metadata.namespace, obj.metadata.name)


def version_of(obj: HasMeta) -> int:
    """resourceVersion as a number; 0 when it is none. Every API server in use here counts in numbers."""
    text = obj.metadata.resource_version
    return int(text) if text.isdigit() else 0


class Store(Generic[T]):
    """Objects by key. `indexers`: name of an index → the values under which an object is found."""

    def __init__(self, indexers: Mapping[str, Indexer] | None = None) -> None:
        self.version = 0
        """Whatever happened up to this version is in: what a write made before is here, or its end is."""
        self._objects: dict[Key, T] = {}
        self._indexers = dict(indexers or {})
        self._index: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in self._indexers}
        self._untold: dict[Key, T | None] = {}
        """Keys that a write changed and no event has yet: what they held before, None for nothing."""

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get((namespace, name))

    def keys(self) -> set[Key]:
        return set(self._objects)

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        return [self._objects[key] for key in self._index[index].get(value, ())]

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, obj: T) -> T | None:
        """Store `obj`; returns what it replaced."""
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = obj
        for name, indexer in self._indexers.items():
            for value in indexer(obj):
                self._index[name].setdefault(value, {})[key] = None
        return old

    def remove(self, key: Key) -> T | None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
        return old

    def told(self, key: Key) -> T | None:
        """What was last told of `key`: the stored object, or what a write has replaced since."""
        return self._untold.get(key, self._objects.get(key))

    def settle(self, key: Key) -> T | None:
        """What was last told of `key`; the stored object is told from now on."""
        return self._untold.pop(key, self._objects.get(key))

    def part(self, key: Key) -> None:
        """The end of what was last told of `key` is told; the stored object, its successor, is still to come."""
        self._untold[key] = None

    def list(self) -> builtins.list[T]:
        return [*self._objects.values()]

    def apply_write(self, obj: T) -> bool:
        """Put the answer of a write in, unless the store has the same or a newer one, or has seen its end."""
        old = self._objects.get(key_of(obj))
        if version_of(obj) <= max(self.version, 0 if old is None else version_of(old)):
            return False
        self.put(obj)
        self._untold.setdefault(key_of(obj), old)
        return True

    def _unindex(self, key: Key, old: T) -> None:
        for name, indexer in self._indexers.items():
            for value in indexer(old):
                keys = self._index[name].get(value)
                if keys is not None:
                    keys.pop(key, None)
                    if not keys:
                        del self._index[name][value]
