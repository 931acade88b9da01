"""What is asked of the API server: the parts of a request, and of its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from reconciler.kube import selectors
from reconciler.kube.transport import JSON
from reconciler.sim import kinds
from reconciler.sim.failures import ApiFailure, bad_request
from reconciler.sim.kinds import Kind, Object


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    user: str = ""
    """Who asks; kept for the audit."""

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and self.query.get("watch", "").lower() in ("true", "1")

    def json(self) -> Any:
        """The body. Raises ApiFailure 400 when it is not JSON."""
        try:
            return msgspec.json.decode(self.body or b"")
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is not JSON: {error}") from error


@dataclass(frozen=True)
class Target:
    """What a path names. `name` is "" for a collection, `namespace` is "" for all of them."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


def target(path: str) -> Target:
    """`/api/v1/…` and `/apis/GROUP/VERSION/…`. Raises ApiFailure 404 for anything else."""
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise _unknown(path)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) >= 3:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0]) if 1 <= len(rest) <= 3 else None
    if kind is None or (namespace and not kind.namespaced):
        raise _unknown(path)
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and not (subresource == "status" and kind.status):
        raise _unknown(path)
    if name and kind.namespaced and not namespace:
        raise _unknown(path)
    return Target(kind, namespace, name, subresource)


class Filter:
    """The namespace and the two selectors of a list or watch. Raises ApiFailure 400 on one that cannot be read."""

    def __init__(self, namespace: str, query: Mapping[str, str]) -> None:
        self._namespace = namespace
        try:
            self._labels = selectors.parse(query.get("labelSelector", ""))
            fields = selectors.parse_fields(query.get("fieldSelector", ""))
        except ValueError as error:
            raise bad_request(str(error)) from error
        self._fields = [(path.split("."), value) for path, value in fields.items()]

    def holds(self, obj: Object) -> bool:
        meta = obj["metadata"]
        if self._namespace and meta.get("namespace") != self._namespace:
            return False
        if any(_value(obj, path) != value for path, value in self._fields):
            return False
        return selectors.matches(self._labels, meta.get("labels") or {})


def _value(obj: Any, path: list[str]) -> str:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return "" if obj is None else str(obj)


def _unknown(path: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f"the server could not find the requested resource: {path}")
