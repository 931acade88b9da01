"""Create, update and delete of one object: the rules of the generic registry of Kubernetes.

Preconditions, status subresource, generation, finalizers, the three propagations of a deletion, and pods
that are marked first and removed by their kubelet. A write that changes nothing is none.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from reconciler.api.clock import Clock
from reconciler.sim import garbage, schema
from reconciler.sim.failures import already_exists, bad_request, conflict, invalid, not_found
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.store import Key, Record, Store

DEFAULT_POD_GRACE = 30
"""Seconds, the default of `terminationGracePeriodSeconds`."""
SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: Kubernetes' own, free of bad words."""
SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
"""Of metadata: set by the server only."""


@dataclass(frozen=True)
class Manner:
    """How one write is to be done."""

    strict: bool = False
    """`fieldValidation=Strict`: an unknown field refuses the write, else it is pruned."""
    rehearsed: bool = False
    """`dryRun=All`: everything but storing it."""
    by_schema: bool = True
    """False: the CRD is an older one that had no schema for this."""


PLAIN = Manner()


class Writer:
    """Writes to a store. Each call raises ApiFailure and is done in one step of the event loop."""

    def __init__(self, store: Store, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._owned = garbage.Index()

    def create(self, kind: Kind, namespace: str, obj: Object, manner: Manner = PLAIN) -> Record:
        meta = dict(obj.get("metadata") or {})
        name = meta.get("name") or self._generated(meta.get("generateName", ""))
        if kind.namespaced:
            if not namespace or meta.get("namespace", namespace) != namespace:
                raise bad_request(f"the namespace of {kind.plural} {name!r} does not match the request")
            meta["namespace"] = namespace
        key = (namespace if kind.namespaced else "", name)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            meta.pop(field, None)
        meta.update(name=name, uid=self._uid(), creationTimestamp=self._now())
        if kind.generation:
            meta["generation"] = 1
        made = {**obj, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        if kind.status and not kind.status_metadata:
            made.pop("status", None)
        made = _checked(kind, made, manner)
        if self._store.get(kind, key) is not None:  # the name is the storage's, which comes after validation
            raise already_exists(kind.plural, name)
        if manner.rehearsed:
            return Record(self._store.version, made, msgspec.json.encode(made))
        return self._put(kind, key, made)

    def update(
        self, kind: Kind, key: Key, subresource: str, change: Callable[[Object], Object], manner: Manner = PLAIN
    ) -> Record:
        """Replace an object by what `change` makes of it, within what the subresource may touch."""
        record = self._existing(kind, key)
        old = record.object
        new = change(old)
        self._preconditions(kind, key, old, new.get("metadata") or {})
        new = _restricted(kind, subresource, old, new)
        if new == old:
            return record
        for field in kind.immutable:
            if subresource == "" and field in old and old.get(field) != new.get(field):
                raise invalid(f"{kind.kind} {key[1]!r}: {field}: field is immutable")
        new = _checked(kind, new, manner)
        if manner.rehearsed:
            return Record(self._store.version, new, msgspec.json.encode(new))
        if _released(new):
            self._put(kind, key, new)
            return self._remove(kind, key)
        return self._put(kind, key, new)

    def delete(self, kind: Kind, key: Key, options: dict[str, Any], manner: Manner = PLAIN) -> Record:
        """Remove an object, or mark it for its finalizers or its kubelet."""
        record = self._existing(kind, key)
        old = record.object
        self._preconditions(kind, key, old, options.get("preconditions") or {})
        if manner.rehearsed:
            return record
        grace = _grace(old, options) if kind.graceful else 0
        finalizers = _finalizers(old, options.get("propagationPolicy") or "Background")
        if grace == 0 and not finalizers:
            return self._remove(kind, key)
        meta = dict(old["metadata"])
        if finalizers:
            meta["finalizers"] = finalizers
        before = meta.get("deletionGracePeriodSeconds")
        if before is None or grace < before:
            meta["deletionGracePeriodSeconds"] = grace
            meta["deletionTimestamp"] = _text(self._clock.now() + timedelta(seconds=grace))
            if before is None and "generation" in meta:
                meta["generation"] += 1
        new = {**old, "metadata": meta}
        if new != old:
            record = self._put(kind, key, new)
        garbage.on_marked(self, self._owned, kind, key)
        return record

    def get(self, kind: Kind, key: Key) -> Record | None:
        return self._store.get(kind, key)

    def _existing(self, kind: Kind, key: Key) -> Record:
        record = self._store.get(kind, key)
        if record is None:
            raise not_found(kind.plural, key[1])
        return record

    def _put(self, kind: Kind, key: Key, obj: Object) -> Record:
        self._owned.note(kind, key, obj)
        return self._store.put(kind, key, obj)

    def _remove(self, kind: Kind, key: Key) -> Record:
        self._owned.forget(kind, key)
        last = self._store.remove(kind, key)
        meta = last.object["metadata"]
        owners = [owner["uid"] for owner in meta.get("ownerReferences") or ()]
        garbage.on_removed(self, self._owned, meta["uid"], owners)
        return last

    @staticmethod
    def _preconditions(kind: Kind, key: Key, old: Object, asked: dict[str, Any]) -> None:
        meta = old["metadata"]
        uid, version = asked.get("uid"), asked.get("resourceVersion")
        if uid and uid != meta["uid"]:
            raise conflict(kind.plural, key[1], f"Precondition failed: UID: {uid}, of the object: {meta['uid']}")
        if version and version != meta["resourceVersion"]:
            raise conflict(kind.plural, key[1], "the object has been modified; please apply your changes to the latest")
        if asked.get("name", key[1]) != key[1]:
            raise bad_request(f"the name of the object ({asked['name']}) does not match the URL ({key[1]})")

    def _generated(self, prefix: str) -> str:
        if not prefix:
            raise invalid("metadata.name: name or generateName is required")
        return prefix + "".join(self._rng.choice(SUFFIX) for _ in range(5))

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _now(self) -> str:
        return _text(self._clock.now())


def _checked(kind: Kind, obj: Object, manner: Manner) -> Object:
    """What is stored of `obj`. Raises ApiFailure 400 or 422."""
    if kind.schema is not None and manner.by_schema:
        unknown: list[str] = []
        obj = {**obj, **{f: schema.pruned(obj[f], s, f, unknown) for f, s in _own_fields(kind) if f in obj}}
        if unknown and manner.strict:
            fields = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise bad_request(f"strict decoding error: {fields}")
        if found := list(schema.errors(obj, kind.schema)):
            raise invalid(f'{kind.kind} "{obj["metadata"]["name"]}" is invalid: {"; ".join(found)}')
    if kind.validate is not None:
        kind.validate(obj)
    return obj


def _own_fields(kind: Kind) -> list[tuple[str, dict[str, Any]]]:
    fields: dict[str, dict[str, Any]] = (kind.schema or {})["properties"]
    return [(name, below) for name, below in fields.items() if name not in ("apiVersion", "kind", "metadata")]


def _restricted(kind: Kind, subresource: str, old: Object, new: Object) -> Object:
    """`new` with everything put back that this path may not change."""
    meta = dict(new.get("metadata") or {})
    for field in SYSTEM_FIELDS:
        meta.pop(field, None)
        if field in old["metadata"]:
            meta[field] = old["metadata"][field]
    for field in ("name", "namespace", "resourceVersion"):
        if field in old["metadata"]:
            meta[field] = old["metadata"][field]
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not meta.get(field):
            meta.pop(field, None)
    head = {"apiVersion": old["apiVersion"], "kind": old["kind"]}
    if subresource == "status":
        kept = meta if kind.status_metadata else old["metadata"]
        return {**old, **head, "metadata": kept, **_only(new, "status")}
    result = {**new, **head, "metadata": meta}
    if kind.status:
        result.pop("status", None)
        result.update(_only(old, "status"))
    if kind.generation and _spec(result) != _spec(old):
        meta["generation"] = old["metadata"].get("generation", 0) + 1
    return result


def _spec(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status", "apiVersion", "kind")}


def _only(obj: Object, field: str) -> Object:
    return {field: obj[field]} if field in obj else {}


def _released(obj: Object) -> bool:
    """Marked for deletion, and nothing holds it any more."""
    meta = obj["metadata"]
    marked = "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")
    return marked and not meta.get("finalizers")


def _grace(pod: Object, options: dict[str, Any]) -> int:
    """Seconds a pod is owed: none when no kubelet has it, or when it has ended."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(asked if asked is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_POD_GRACE))


def _finalizers(obj: Object, propagation: str) -> list[str]:
    """The finalizers of an object that is being deleted that way."""
    kept = [f for f in obj["metadata"].get("finalizers") or () if f not in (garbage.FOREGROUND, garbage.ORPHAN)]
    extra = {"Foreground": [garbage.FOREGROUND], "Orphan": [garbage.ORPHAN]}.get(propagation, [])
    return kept + extra


def _text(moment: datetime) -> str:
    """Kubernetes' `metav1.Time`: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
