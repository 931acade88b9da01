"""What is asked of the API server: the parts of a request, and of its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from reconciler.kube import selectors
from reconciler.kube.transport import JSON
from reconciler.sim import kinds
from reconciler.sim.failures import Cause, NoSuchPath, bad_request, invalid_options, unknown_resource
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
        raise NoSuchPath
    if group not in kinds.GROUPS:
        raise NoSuchPath
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) >= 3:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0]) if 1 <= len(rest) <= 3 else None
    if kind is None or (namespace and not kind.namespaced):
        raise unknown_resource()
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and not (subresource == "status" and kind.status):
        raise unknown_resource()
    if name and kind.namespaced and not namespace:
        raise unknown_resource()
    return Target(kind, namespace, name, subresource)


class Filter:
    """The namespace and the two selectors of a list or watch. Raises ApiFailure 400 on one that cannot be read."""

    def __init__(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> None:
        self._namespace = namespace
        try:
            self._labels = selectors.parse(query.get("labelSelector", ""))
        except ValueError as error:
            raise bad_request(str(error)) from error
        self._fields = [_field(kind, part) for part in filter(None, query.get("fieldSelector", "").split(","))]

    @property
    def everything(self) -> bool:
        """Whether there is no selector."""
        return not self._fields and not self._labels.match_expressions

    def holds(self, obj: Object) -> bool:
        meta = obj["metadata"]
        if self._namespace and meta.get("namespace") != self._namespace:
            return False
        if any((_value(obj, path) == value) is not wanted for path, wanted, value in self._fields):
            return False
        return selectors.matches(self._labels, meta.get("labels") or {})


def number(query: Mapping[str, str], name: str) -> int | None:
    """A parameter that is a number, None when it is not given. Raises ApiFailure 400."""
    text = query.get(name, "")
    if text and not text.removeprefix("-").isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text) if text else None


def rehearsed(request: Request) -> bool:
    """Whether it is a dry run. Raises ApiFailure 422 on a value that is not known."""
    asked = request.query.get("dryRun", "")
    if asked not in ("", "All"):
        cause = Cause("dryRun", f'Unsupported value: ["{asked}"]: supported values: "All"')
        raise invalid_options("CreateOptions", cause)
    return asked == "All"


def _field(kind: Kind, part: str) -> tuple[list[str], bool, str]:
    """Path, whether it is to be equal, value. Raises ApiFailure 400."""
    path, sign, value = part.partition("=")
    if not sign:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    wanted = not path.endswith("!")
    path = path.removesuffix("!").strip()
    if path not in ("metadata.name", "metadata.namespace", *kind.fields):
        only = '"metadata.name", "metadata.namespace"'
        generic = f'"{path}" is not a known field selector: only {only}'
        raise bad_request(f"field label not supported: {path}" if kind.own_fields else generic)
    return path.split("."), wanted, value.removeprefix("=").strip()


def _value(obj: Any, path: list[str]) -> str:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return "" if obj is None else str(obj)
