"""The garbage collector: what becomes of dependents when their owner goes.

Background: dependents go after the owner. Foreground: the owner waits, marked, until those of its
dependents are gone that say `blockOwnerDeletion`; all of them are deleted as soon as it is marked,
**whatever other finalizers it has** (which is why nothing that an undo needs may carry an owner reference
to the NodeRuntime). Orphan: the references are taken off. An object that is created for owners that are
gone is taken away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.sim.kinds import Kind, Object
from reconciler.sim.store import Key

if TYPE_CHECKING:
    from reconciler.sim.writes import Writer

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

Ref = tuple[Kind, Key]


class Index:
    """Who is owned by which UID, and which object has which UID."""

    def __init__(self) -> None:
        self._dependents: dict[str, set[Ref]] = {}
        self._owners: dict[Ref, list[str]] = {}
        self._by_uid: dict[str, Ref] = {}
        self._uids: dict[Ref, str] = {}

    def note(self, kind: Kind, key: Key, obj: Object) -> None:
        """`obj` is stored there now."""
        self.forget(kind, key)
        ref = (kind, key)
        uid = obj["metadata"]["uid"]
        owners = [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()]
        self._uids[ref] = uid
        self._by_uid[uid] = ref
        if owners:
            self._owners[ref] = owners
        for owner in owners:
            self._dependents.setdefault(owner, set()).add(ref)

    def forget(self, kind: Kind, key: Key) -> None:
        ref = (kind, key)
        self._by_uid.pop(self._uids.pop(ref, ""), None)
        for owner in self._owners.pop(ref, ()):
            self._dependents[owner].discard(ref)
            if not self._dependents[owner]:
                del self._dependents[owner]

    def dependents(self, uid: str) -> list[Ref]:
        """In an order that does not depend on hashing."""
        return sorted(self._dependents.get(uid, ()), key=lambda ref: (ref[0].plural, ref[1]))

    def there(self, uid: str) -> Ref | None:
        return self._by_uid.get(uid)


def on_marked(writer: Writer, index: Index, kind: Kind, key: Key) -> None:
    """An object waits for its finalizers."""
    record = writer.get(kind, key)
    if record is None:
        return
    meta = record.object["metadata"]
    finalizers = meta.get("finalizers") or ()
    if ORPHAN in finalizers:
        for ref in index.dependents(meta["uid"]):
            writer.update(*ref, "", lambda obj: _disowned(obj, meta["uid"]))
        writer.update(kind, key, "", lambda obj: _without(obj, ORPHAN))
    elif FOREGROUND in finalizers:
        for ref in index.dependents(meta["uid"]):
            writer.delete(*ref, {"propagationPolicy": "Foreground"})
        _finish_foreground(writer, index, meta["uid"])


def on_created(writer: Writer, index: Index, kind: Kind, key: Key) -> None:
    """An object whose owners are all gone is taken away."""
    record = writer.get(kind, key)
    owners = [] if record is None else record.object["metadata"].get("ownerReferences") or ()
    if owners and all(index.there(owner["uid"]) is None for owner in owners):
        writer.delete(kind, key, {"propagationPolicy": "Background"})


def on_removed(writer: Writer, index: Index, uid: str, owners: list[str]) -> None:
    """An object is gone: its dependents follow, and an owner that waited for it may go."""
    for kind, key in index.dependents(uid):
        record = writer.get(kind, key)
        if record is None:
            continue
        others = [o["uid"] for o in record.object["metadata"].get("ownerReferences") or ()]
        if any(index.there(owner) is not None for owner in others):
            writer.update(kind, key, "", lambda obj: _disowned(obj, uid))
        elif "deletionTimestamp" not in record.object["metadata"]:
            writer.delete(kind, key, {"propagationPolicy": "Background"})
    for owner in owners:
        _finish_foreground(writer, index, owner)


def _finish_foreground(writer: Writer, index: Index, uid: str) -> None:
    ref = index.there(uid)
    record = None if ref is None else writer.get(*ref)
    if ref is None or record is None or any(_blocks(writer, dependent, uid) for dependent in index.dependents(uid)):
        return
    if FOREGROUND in (record.object["metadata"].get("finalizers") or ()):
        writer.update(*ref, "", lambda obj: _without(obj, FOREGROUND))


def _blocks(writer: Writer, dependent: Ref, owner: str) -> bool:
    """Whether the owner, in the foreground, waits for it."""
    record = writer.get(*dependent)
    refs = () if record is None else record.object["metadata"].get("ownerReferences") or ()
    return any(ref["uid"] == owner and ref.get("blockOwnerDeletion") for ref in refs)


def _without(obj: Object, finalizer: str) -> Object:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "finalizers": [f for f in meta.get("finalizers") or () if f != finalizer]}}


def _disowned(obj: Object, uid: str) -> Object:
    meta = obj["metadata"]
    kept = [owner for owner in meta.get("ownerReferences") or () if owner["uid"] != uid]
    return {**obj, "metadata": {**meta, "ownerReferences": kept}}
