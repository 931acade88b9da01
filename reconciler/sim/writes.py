"""Create, update and delete of one object: the rules of the generic registry of Kubernetes.

Preconditions, status subresource, generation, finalizers, the three propagations of a deletion, and pods
that are marked first and removed by their kubelet. A write that changes nothing is none.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from reconciler.api.clock import Clock
from reconciler.sim import garbage, metadata, schema
from reconciler.sim.failures import (
    MODIFIED,
    ApiFailure,
    Cause,
    already_exists,
    bad_request,
    conflict,
    invalid,
    invalid_options,
    not_found,
)
from reconciler.sim.kinds import NAMESPACES, PODS, SERVICEACCOUNTS, Kind, Object
from reconciler.sim.store import Key, Record, Store

DEFAULT_POD_GRACE = 30
"""Seconds, the default of `terminationGracePeriodSeconds`."""
GENERATED_MAX = 58
"""Letters taken of `generateName`."""
PROPAGATIONS = ("Background", "Foreground", "Orphan")
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
    warn: bool = False
    """Unknown fields are told of in `warnings`; the default of `fieldValidation`."""
    warnings: list[str] = field(default_factory=list)


PLAIN = Manner()


class Writer:
    """Writes to a store. Each call raises ApiFailure and is done in one step of the event loop."""

    def __init__(
        self, store: Store, *, clock: Clock, rng: random.Random, namespaces: frozenset[str] | None = None
    ) -> None:
        """`namespaces`: those that are there without an object; None: every one is."""
        self._store = store
        self._clock = clock
        self._rng = rng
        self._namespaces = namespaces
        self._owned = garbage.Index()

    def create(self, kind: Kind, namespace: str, obj: Object, manner: Manner = PLAIN) -> Record:
        metadata.decoded(kind.kind, obj.get("metadata") or {})
        meta = dict(obj.get("metadata") or {})
        name = meta.get("name") or self._generated(kind, meta.get("generateName", ""))
        if kind.namespaced:
            self._admit(kind, namespace, name, obj)
            meta["namespace"] = namespace
        key = (namespace if kind.namespaced else "", name)
        if meta.get("resourceVersion"):
            raise ApiFailure(500, "", "resourceVersion should not be set on objects to be created")
        for unset in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"):
            meta.pop(unset, None)
        meta.update(name=name, uid=self._uid(), creationTimestamp=self._now())
        if kind.generation:
            meta["generation"] = 1
        made = _typed(kind, {**obj, "metadata": meta})
        if kind.status and not kind.status_metadata:
            made.pop("status", None)
        if kind == PODS:
            made["status"] = {"phase": "Pending"}
        made = _checked(kind, made, None, manner)
        there = self._store.get(kind, key)
        if there is not None:  # the name is the storage's, which comes after validation
            raise already_exists(kind, name, dying="deletionTimestamp" in there.object["metadata"])
        if manner.rehearsed:
            return Record(self._store.version, made, msgspec.json.encode(made))
        record = self._put(kind, key, made)
        garbage.on_created(self, self._owned, kind, key)
        return record

    def _admit(self, kind: Kind, namespace: str, name: str, obj: Object) -> None:
        """The namespace is there, and the ServiceAccount of a pod. Raises ApiFailure."""
        if not namespace or (obj.get("metadata") or {}).get("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        known = self._namespaces is None or namespace in self._namespaces
        if not known and self._store.get(NAMESPACES, ("", namespace)) is None:
            raise not_found(NAMESPACES, namespace)
        account = (obj.get("spec") or {}).get("serviceAccountName") or "default"
        if kind == PODS and account != "default" and self._store.get(SERVICEACCOUNTS, (namespace, account)) is None:
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise ApiFailure(
                403, "Forbidden", f'pods "{name}" is forbidden: {why}', details={"name": name, "kind": "pods"}
            )

    def replace(self, kind: Kind, key: Key, subresource: str, new: Object, manner: Manner = PLAIN) -> Record:
        """By another whole object. Raises ApiFailure."""
        metadata.decoded(kind.kind, new.get("metadata") or {})
        meta = new.get("metadata") or {}
        if not meta.get("name"):
            raise bad_request(
                f"the name of the object ({key[1]} based on URL) was undeterminable: name must be provided"
            )
        record = self._existing(kind, key)
        if not meta.get("resourceVersion") and not kind.unconditional:
            why = "Invalid value: 0: must be specified for an update"
            raise invalid(kind, key[1], [Cause("metadata.resourceVersion", why)])
        there = record.object["metadata"]["uid"]
        if meta.get("uid", there) != there:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {there}"
            raise conflict(kind, key[1], why)
        return self.update(kind, key, subresource, lambda old: new, manner)

    def update(
        self, kind: Kind, key: Key, subresource: str, change: Callable[[Object], Object], manner: Manner = PLAIN
    ) -> Record:
        """Make of an object what `change` makes of it, within what the subresource may touch."""
        record = self._existing(kind, key)
        old = record.object
        new = change(old)
        asked = new.get("metadata") or {}
        metadata.decoded(kind.kind, asked)
        _same_place(kind, key, asked)
        if asked.get("resourceVersion") and asked["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise conflict(kind, key[1], MODIFIED)
        if wrong := list(metadata.fixed(old["metadata"], asked)):
            raise invalid(kind, key[1], wrong)
        new = _restricted(kind, subresource, old, _typed(kind, new))
        if new == old:
            return record
        new = _checked(kind, new, old, manner)
        if manner.rehearsed:
            return Record(self._store.version, new, msgspec.json.encode(new))
        if _released(new):
            self._remove(kind, key)
            return Record(record.version, new, msgspec.json.encode(new))
        return self._put(kind, key, new)

    def delete(self, kind: Kind, key: Key, options: dict[str, Any], manner: Manner = PLAIN) -> Record:
        """Remove an object, or mark it for its finalizers or its kubelet. The answer is its last form."""
        policy = options.get("propagationPolicy")
        if policy is not None and policy not in PROPAGATIONS:
            offered = ", ".join(f'"{one}"' for one in PROPAGATIONS)
            says = f'Unsupported value: "{policy}": supported values: {offered}'
            raise invalid_options("DeleteOptions", Cause("propagationPolicy", says))
        record = self._existing(kind, key)
        old = record.object
        _may_go(kind, key, old["metadata"], options.get("preconditions") or {})
        if manner.rehearsed:
            return record
        grace = _grace(old, options) if kind.graceful else 0
        finalizers = _finalizers(old, policy or "Background")
        if kind.graceful or finalizers:
            new = self._marked(old, grace, finalizers)
            if new != old:
                record = self._put(kind, key, new)
        if not finalizers and not record.object["metadata"].get("deletionGracePeriodSeconds"):
            return self._remove(kind, key)
        garbage.on_marked(self, self._owned, kind, key)
        return record

    def _marked(self, old: Object, grace: int, finalizers: list[str]) -> Object:
        meta = dict(old["metadata"])
        if finalizers:
            meta["finalizers"] = finalizers
        before = meta.get("deletionGracePeriodSeconds")
        if before is None or grace < before:
            meta["deletionGracePeriodSeconds"] = grace
            meta["deletionTimestamp"] = _text(self._clock.now() + timedelta(seconds=grace))
            if before is None and "generation" in meta:
                meta["generation"] += 1
        return {**old, "metadata": meta}

    def get(self, kind: Kind, key: Key) -> Record | None:
        return self._store.get(kind, key)

    def _existing(self, kind: Kind, key: Key) -> Record:
        record = self._store.get(kind, key)
        if record is None:
            raise not_found(kind, key[1])
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

    def _generated(self, kind: Kind, prefix: str) -> str:
        if not prefix:
            raise invalid(kind, "", [Cause("metadata.name", "Required value: name or generateName is required")])
        return prefix[:GENERATED_MAX] + "".join(self._rng.choice(SUFFIX) for _ in range(5))

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _now(self) -> str:
        return _text(self._clock.now())


def _typed(kind: Kind, obj: Object) -> Object:
    """With its kind, and without the maps that are left out when they are empty. Raises ApiFailure 400."""
    for name, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if (obj.get(name) or (wanted if kind.built_in else "")) != wanted:
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {obj.get(name)!r}")
    bare = {key: value for key, value in obj.items() if value or key not in kind.omitted}
    return {**bare, "apiVersion": kind.api_version, "kind": kind.kind}


def _same_place(kind: Kind, key: Key, meta: dict[str, Any]) -> None:
    """Raises ApiFailure 400 on another name or namespace than the request's."""
    if meta.get("name", key[1]) != key[1]:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({key[1]})")
    if meta.get("namespace", key[0]) != key[0]:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _may_go(kind: Kind, key: Key, meta: dict[str, Any], asked: dict[str, Any]) -> None:
    """The preconditions of a deletion. Raises ApiFailure 409."""
    for field_, word, then in (("uid", "UID", "deleted and then recreated"), ("resourceVersion",) * 2 + ("modified",)):
        wanted, there = asked.get(field_), meta[field_]
        if wanted and wanted != there:
            name = word[:1].upper() + word[1:]
            why = f"the {name} in the precondition ({wanted}) does not match the {name} in record ({there})"
            raise conflict(kind, key[1], f"{why}. The object might have been {then}")


def _checked(kind: Kind, obj: Object, old: Object | None, manner: Manner) -> Object:
    """What is stored of `obj`. Raises ApiFailure 400 or 422."""
    unknown: list[str] = kind.unknown(obj) if kind.unknown is not None and old is None else []
    by_schema = kind.schema is not None and manner.by_schema
    if by_schema:
        obj = {**obj, **{f: schema.pruned(obj[f], s, f, unknown) for f, s in _own_fields(kind) if f in obj}}
    if unknown and manner.strict:
        fields = ", ".join(f'unknown field "{path}"' for path in unknown)
        head = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        raise bad_request(f"{head}strict decoding error: {fields}")
    if manner.warn:
        manner.warnings.extend(f'unknown field "{path}"' for path in unknown)
    wrong = list(metadata.causes(obj["metadata"]))
    if by_schema and kind.schema is not None:
        wrong += [Cause(*text.split(": ", 1)) for text in schema.errors(obj, kind.schema)]
    if kind.rules is not None and not wrong:
        wrong += kind.rules(obj, old)
    if wrong:
        raise invalid(kind, obj["metadata"]["name"], wrong)
    return obj


def _own_fields(kind: Kind) -> list[tuple[str, dict[str, Any]]]:
    fields: dict[str, dict[str, Any]] = (kind.schema or {})["properties"]
    return [(name, below) for name, below in fields.items() if name not in ("apiVersion", "kind", "metadata")]


def _restricted(kind: Kind, subresource: str, old: Object, new: Object) -> Object:
    """`new` with everything put back that this path may not change."""
    meta = dict(new.get("metadata") or {})
    for name in SYSTEM_FIELDS:
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]
    for name in ("name", "namespace", "resourceVersion"):
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not meta.get(name):
            meta.pop(name, None)
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
    if asked is None and "deletionGracePeriodSeconds" in pod["metadata"]:
        return int(pod["metadata"]["deletionGracePeriodSeconds"])
    grace = int(asked if asked is not None else spec.get("terminationGracePeriodSeconds", DEFAULT_POD_GRACE))
    return grace if grace >= 0 else 1


def _finalizers(obj: Object, propagation: str) -> list[str]:
    """The finalizers of an object that is being deleted that way."""
    kept = [f for f in obj["metadata"].get("finalizers") or () if f not in (garbage.FOREGROUND, garbage.ORPHAN)]
    extra = {"Foreground": [garbage.FOREGROUND], "Orphan": [garbage.ORPHAN]}.get(propagation, [])
    return kept + extra


def _text(moment: datetime) -> str:
    """Kubernetes' `metav1.Time`: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
