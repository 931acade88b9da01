"""The embedded API server: objects, versions, watches, patches and garbage collection as the real one does them.

Synchronous and without IO; `sim.http` and `sim.memory` are its two front ends. Where the real server
checks more than we use (schemas, admission, RBAC), this one does not.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
import json
import random
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.api.meta import LabelSelector
from reconciler.kube import selectors
from reconciler.sim.patch import PatchError, json_patch, merge_patch, strategic_patch

Object = dict[str, Any]

KINDS: Mapping[str, tuple[str, bool, str]] = {
    # plural → (apiVersion, namespaced, kind)
    "nodes": ("v1", False, "Node"),
    "pods": ("v1", True, "Pod"),
    "daemonsets": ("apps/v1", True, "DaemonSet"),
    "controllerrevisions": ("apps/v1", True, "ControllerRevision"),
    "leases": ("coordination.k8s.io/v1", True, "Lease"),
    "events": ("events.k8s.io/v1", True, "Event"),
    "runtimeclasses": ("node.k8s.io/v1", False, "RuntimeClass"),
    names.PLURAL: (names.API_VERSION, False, names.KIND),
}
WITH_STATUS = frozenset({"nodes", "pods", "daemonsets", names.PLURAL})
WATCH_BOUND = 10_000
"""Events that a watcher may lag behind before it is cut off, as a slow watcher is."""


class StatusError(Exception):
    """An error answer."""

    def __init__(self, code: int, reason: str, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def body(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


@dataclass(frozen=True)
class Target:
    """What a URL path names."""

    plural: str
    namespace: str
    name: str
    subresource: str


@dataclass
class Change:
    """One event of the history; `before` is what a selector may have matched."""

    version: int
    kind: str
    plural: str
    obj: Object
    before: Object | None


@dataclass(eq=False)
class Watcher:
    """A running watch; `queue` holds JSON-ready events, None ends it."""

    plural: str
    namespace: str
    accepts: Callable[[Object], bool]
    queue: deque[Object | None] = field(default_factory=deque)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, event: Object | None) -> None:
        if len(self.queue) >= WATCH_BOUND:
            event = None
        self.queue.append(event)
        self.ready.set()


_PATH = re.compile(
    r"^/(?:api/v1|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?$"
)


def parse_path(path: str) -> Target:
    """Raises StatusError 404 for a path that names nothing we serve."""
    found = _PATH.match(path)
    if found is None or found["plural"] not in KINDS:
        raise StatusError(404, "NotFound", f"the server could not find the requested resource: {path}")
    version = f"{found['group']}/{found['version']}" if found["group"] else "v1"
    if KINDS[found["plural"]][0] != version:
        raise StatusError(404, "NotFound", f"the server could not find the requested resource: {path}")
    return Target(found["plural"], found["namespace"] or "", found["name"] or "", found["sub"] or "")


class ApiServer:
    """`uids` come from `rng`, times from `clock`: a run is a function of its seed."""

    def __init__(self, *, clock: Clock, rng: random.Random, history: int = 5000) -> None:
        self._clock = clock
        self._rng = rng
        self._objects: dict[str, dict[tuple[str, str], Object]] = {plural: {} for plural in KINDS}
        self._version = 1
        self._history: deque[Change] = deque(maxlen=history)
        self._oldest = 1
        self._watchers: set[Watcher] = set()
        self.writes: dict[tuple[str, str], int] = {}
        """Accepted writes by verb and plural."""

    # --- reading ---

    @property
    def version(self) -> int:
        return self._version

    def get(self, target: Target) -> Object:
        obj = self._objects[target.plural].get((target.namespace, target.name))
        if obj is None:
            raise StatusError(404, "NotFound", f'{target.plural} "{target.name}" not found')
        return obj

    def find(self, plural: str, namespace: str = "", name: str = "") -> Object | None:
        """The object itself, for the simulated parts of the cluster; not to be changed."""
        return self._objects[plural].get((namespace, name))

    def all(self, plural: str) -> builtins.list[Object]:
        """Every object of a kind, for the simulated parts of the cluster; not to be changed."""
        return list(self._objects[plural].values())

    def list(self, target: Target, query: Mapping[str, str]) -> Object:
        accepts = accepter(query)
        objects = self._objects[target.plural]
        keys = sorted(k for k, o in objects.items() if target.namespace in ("", k[0]) and accepts(o))
        start = int(query["continue"]) if query.get("continue") else 0
        limit = int(query.get("limit", "0")) or len(keys) or 1
        page = keys[start : start + limit]
        meta: Object = {"resourceVersion": str(self._version)}
        if start + limit < len(keys):
            meta["continue"] = str(start + limit)
        api_version, _, kind = KINDS[target.plural]
        return {"apiVersion": api_version, "kind": f"{kind}List", "metadata": meta, "items": [objects[k] for k in page]}

    # --- writing ---

    def create(self, target: Target, body: Object) -> Object:
        obj = copy.deepcopy(body)
        meta = obj.setdefault("metadata", {})
        if not meta.get("name"):
            if not meta.get("generateName"):
                raise StatusError(422, "Invalid", "metadata.name: Required value")
            meta["name"] = meta["generateName"] + f"{self._rng.randrange(36**5):05x}"[:5]
        namespace = target.namespace if KINDS[target.plural][1] else ""
        if KINDS[target.plural][1]:
            meta["namespace"] = namespace
        if (namespace, meta["name"]) in self._objects[target.plural]:
            raise StatusError(409, "AlreadyExists", f'{target.plural} "{meta["name"]}" already exists')
        obj["apiVersion"], _, obj["kind"] = KINDS[target.plural]
        meta["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        meta["creationTimestamp"] = self._now()
        meta["generation"] = 1
        meta.pop("resourceVersion", None)
        if target.plural in WITH_STATUS and target.plural not in ("nodes", "pods"):
            obj.pop("status", None)
        if target.plural == "pods":
            obj.setdefault("status", {"phase": "Pending"})
        self._count("create", target.plural)
        return self._store("ADDED", target.plural, obj, None)

    def replace(self, target: Target, body: Object) -> Object:
        return self._update(target, lambda old: copy.deepcopy(body), "update")

    def patch(self, target: Target, patch: Any, content_type: str) -> Object:
        apply = {
            "application/merge-patch+json": merge_patch,
            "application/json-patch+json": json_patch,
            "application/strategic-merge-patch+json": strategic_patch,
        }.get(content_type)
        if apply is None:
            raise StatusError(415, "UnsupportedMediaType", f"patch type {content_type} is not supported")

        def change(old: Object) -> Object:
            try:
                result: Object = apply(copy.deepcopy(old), patch)
            except PatchError as error:
                raise StatusError(422, "Invalid", str(error)) from error
            return result

        return self._update(target, change, "patch")

    def delete(self, target: Target, options: Object) -> Object:
        obj = self.get(target)
        self._preconditions(obj, options.get("preconditions") or {})
        self._count("delete", target.plural)
        policy = options.get("propagationPolicy", "Background")
        finalizers = list(obj["metadata"].get("finalizers", ()))
        if policy == "Orphan":
            self._orphan(obj)
        if policy == "Foreground" and "foregroundDeletion" not in finalizers and self._dependents(obj):
            finalizers.append("foregroundDeletion")
        grace = self._grace(target.plural, obj, options)
        if not finalizers and grace == 0:
            return self._remove(target.plural, obj, background=policy != "Orphan")
        new = copy.deepcopy(obj)
        meta = new["metadata"]
        if finalizers:
            meta["finalizers"] = finalizers
        first = "deletionTimestamp" not in meta
        if not first and (target.plural != "pods" or grace >= meta.get("deletionGracePeriodSeconds", 0)):
            return obj
        meta["deletionTimestamp"] = self._now(ahead=grace)
        meta["deletionGracePeriodSeconds"] = grace
        if first and target.plural != "pods":
            meta["generation"] = meta.get("generation", 1) + 1
        stored = self._store("MODIFIED", target.plural, new, obj)
        if "foregroundDeletion" in finalizers:
            self._collect()
        return stored

    # --- watching ---

    def watch(self, target: Target, query: Mapping[str, str]) -> Watcher:
        """A watch from `resourceVersion`. Raises StatusError 410 when that is compacted away."""
        version = int(query.get("resourceVersion") or 0)
        if version and version < self._oldest:
            raise StatusError(410, "Expired", f"too old resource version: {version} ({self._oldest})")
        watcher = Watcher(target.plural, target.namespace, accepter(query))
        if version == 0:
            for obj in self.list(target, query)["items"]:
                watcher.push({"type": "ADDED", "object": obj})
        else:
            for change in self._history:
                if change.version > version:
                    self._offer(watcher, change)
        self._watchers.add(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def bookmark(self, watcher: Watcher) -> None:
        api_version, _, kind = KINDS[watcher.plural]
        meta = {"resourceVersion": str(self._version)}
        watcher.push({"type": "BOOKMARK", "object": {"apiVersion": api_version, "kind": kind, "metadata": meta}})

    def compact(self) -> None:
        """Forget the history: whoever watches from an older version gets 410."""
        self._history.clear()
        self._oldest = self._version + 1

    def break_watches(self, *, expired: bool = False) -> None:
        """End every watch, with an in-stream 410 if `expired`."""
        for watcher in list(self._watchers):
            if expired:
                watcher.push(
                    {"type": "ERROR", "object": StatusError(410, "Expired", "too old resource version").body()}
                )
            watcher.push(None)

    # --- inside ---

    def _update(self, target: Target, change: Callable[[Object], Object], verb: str) -> Object:
        old = self.get(target)
        new = change(old)
        meta, before = new.setdefault("metadata", {}), old["metadata"]
        asked = meta.get("resourceVersion")
        if asked and asked != before["resourceVersion"]:
            message = f'Operation cannot be fulfilled on {target.plural} "{target.name}": the object has been modified'
            raise StatusError(409, "Conflict", message)
        if meta.get("uid", before["uid"]) != before["uid"]:
            raise StatusError(409, "Conflict", "Precondition failed: UID in precondition")
        for key in ("uid", "name", "namespace", "creationTimestamp", "deletionTimestamp", "generation"):
            if key in before:
                meta[key] = before[key]
            else:
                meta.pop(key, None)
        if target.plural in WITH_STATUS:
            self._split(target, new, old)
        if _changed(new, old, target.plural):
            meta["generation"] = before.get("generation", 1) + 1
        meta["resourceVersion"] = before["resourceVersion"]
        self._count(verb, target.plural)
        if new == old:
            return old
        if "deletionTimestamp" in meta and not meta.get("finalizers") and target.plural != "pods":
            return self._remove(target.plural, {**old, "metadata": meta}, background=True)
        return self._store("MODIFIED", target.plural, new, old)

    @staticmethod
    def _split(target: Target, new: Object, old: Object) -> None:
        """A write of `status` leaves the spec alone (and labels, but not a node's annotations), and the reverse."""
        if target.subresource == "status":
            kept = copy.deepcopy(old)
            kept["status"] = new.get("status", {})
            kept["metadata"]["annotations"] = new["metadata"].get("annotations", {})
            if not kept["metadata"]["annotations"]:
                kept["metadata"].pop("annotations")
            new.clear()
            new.update(kept)
        elif "status" in old:
            new["status"] = copy.deepcopy(old["status"])
        else:
            new.pop("status", None)

    @staticmethod
    def _preconditions(obj: Object, wanted: Mapping[str, str]) -> None:
        for key in ("uid", "resourceVersion"):
            if wanted.get(key) and wanted[key] != obj["metadata"][key]:
                message = (
                    f"Precondition failed: {key} in precondition: {wanted[key]}, in object: {obj['metadata'][key]}"
                )
                raise StatusError(409, "Conflict", message)

    @staticmethod
    def _grace(plural: str, obj: Object, options: Object) -> int:
        if plural != "pods":
            return 0
        if not obj.get("spec", {}).get("nodeName") or obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            asked = options.get("gracePeriodSeconds")
            return 0 if asked is None or not obj.get("spec", {}).get("nodeName") else int(asked)
        asked = options.get("gracePeriodSeconds")
        return int(obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)

    def _store(self, kind: str, plural: str, obj: Object, before: Object | None) -> Object:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        self._objects[plural][key] = obj
        self._publish(Change(self._version, kind, plural, obj, before))
        return obj

    def _remove(self, plural: str, obj: Object, *, background: bool) -> Object:
        gone = copy.deepcopy(obj)
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        del self._objects[plural][(gone["metadata"].get("namespace", ""), gone["metadata"]["name"])]
        self._publish(Change(self._version, "DELETED", plural, gone, obj))
        if background:
            self._collect()
        return gone

    def _publish(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._oldest = self._history[0].version + 1
        self._history.append(change)
        for watcher in list(self._watchers):
            self._offer(watcher, change)

    @staticmethod
    def _offer(watcher: Watcher, change: Change) -> None:
        """An object that stops matching a selector is told as DELETED, one that begins to as ADDED."""
        if change.plural != watcher.plural:
            return
        if watcher.namespace not in ("", change.obj["metadata"].get("namespace", "")):
            return
        now = watcher.accepts(change.obj)
        before = change.before is not None and watcher.accepts(change.before)
        if change.kind == "DELETED":
            if before or now:
                watcher.push({"type": "DELETED", "object": change.obj})
        elif now:
            watcher.push({"type": "MODIFIED" if before else "ADDED", "object": change.obj})
        elif before:
            watcher.push({"type": "DELETED", "object": change.obj})

    # --- garbage collection ---

    def _dependents(self, owner: Object) -> builtins.list[tuple[str, Object]]:
        uid = owner["metadata"]["uid"]
        return [
            (plural, obj)
            for plural, objects in self._objects.items()
            for obj in list(objects.values())
            if any(r.get("uid") == uid for r in obj["metadata"].get("ownerReferences", ()))
        ]

    def _orphan(self, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for plural, obj in self._dependents(owner):
            new = copy.deepcopy(obj)
            new["metadata"]["ownerReferences"] = [r for r in obj["metadata"]["ownerReferences"] if r.get("uid") != uid]
            self._store("MODIFIED", plural, new, obj)

    def _collect(self) -> None:
        """Delete what has no living owner; finish foreground deletions whose dependents are gone."""
        living = {o["metadata"]["uid"]: o for objects in self._objects.values() for o in objects.values()}
        for plural, objects in self._objects.items():
            for obj in list(objects.values()):
                references = obj["metadata"].get("ownerReferences", ())
                owners = [living.get(r.get("uid", "")) for r in references]
                doomed = references and all(o is None or _in_foreground(o) for o in owners)
                if doomed and "deletionTimestamp" not in obj["metadata"]:
                    key = obj["metadata"]
                    self.delete(Target(plural, key.get("namespace", ""), key["name"], ""), {})
                    return self._collect()
        for plural, objects in self._objects.items():
            for obj in list(objects.values()):
                if _in_foreground(obj) and not self._dependents(obj):
                    kept = [f for f in obj["metadata"]["finalizers"] if f != "foregroundDeletion"]
                    key = obj["metadata"]
                    patch = {"metadata": {"finalizers": kept or None}}
                    self.patch(
                        Target(plural, key.get("namespace", ""), key["name"], ""), patch, "application/merge-patch+json"
                    )
                    return self._collect()
        return None

    def _count(self, verb: str, plural: str) -> None:
        self.writes[(verb, plural)] = self.writes.get((verb, plural), 0) + 1

    def _now(self, *, ahead: float = 0.0) -> str:
        moment = self._clock.now().timestamp() + ahead
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def accepter(query: Mapping[str, str]) -> Callable[[Object], bool]:
    """What the two selectors of a request let through. Raises StatusError 400 for one that cannot be read."""
    try:
        wanted: LabelSelector = selectors.parse(query.get("labelSelector", ""))
        fields = selectors.parse_fields(query.get("fieldSelector", ""))
    except ValueError as error:
        raise StatusError(400, "BadRequest", str(error)) from error

    def accepts(obj: Object) -> bool:
        if not selectors.matches(wanted, obj["metadata"].get("labels") or {}):
            return False
        return all(_field(obj, path) == value for path, value in fields.items())

    return accepts


def _field(obj: Object, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def _in_foreground(obj: Object) -> bool:
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and "foregroundDeletion" in meta.get("finalizers", ())


def _changed(new: Object, old: Object, plural: str) -> bool:
    """Whether what counts for `generation` changed."""
    if plural in ("nodes", "pods"):
        return False
    return any(new.get(k) != old.get(k) for k in {*new, *old} - {"metadata", "status"})


def encode(obj: Any) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()
