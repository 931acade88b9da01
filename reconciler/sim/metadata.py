"""The rules of `metadata` that hold for every kind (`apimachinery/pkg/api/validation/objectmeta.go`, 1.34)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from reconciler.sim.failures import Cause, bad_request

Meta = dict[str, Any]

NAME_MAX = 253
PART_MAX = 63
"""Letters of a label's value, and of the part of a key behind its slash."""
ANNOTATIONS_MAX = 256 << 10
"""Bytes of all annotations of an object, keys and values."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_MAPS = ("labels", "annotations")
_SUBDOMAIN_SAYS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_LABEL_SAYS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_PART_SAYS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)


def decoded(kind: str, meta: Any) -> None:
    """Raises ApiFailure 400 on values of a type that the decoder does not take."""
    if not isinstance(meta, dict):
        raise bad_request(f"{kind}: metadata is no object")
    for field in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        if not isinstance(meta.get(field) or "", str):
            raise bad_request(f"{kind}: json: cannot unmarshal metadata.{field} into a string")
    for field in _MAPS:
        if not all(isinstance(value, str) for value in (meta.get(field) or {}).values()):
            raise bad_request(f"{kind}: json: cannot unmarshal metadata.{field} into a map of strings")


def causes(meta: Meta) -> Iterator[Cause]:
    """Everything that is wrong with it."""
    name = meta["name"]
    if len(name) > NAME_MAX:
        yield Cause("metadata.name", f"{_value(name)}must be no more than {NAME_MAX} characters")
    elif not _SUBDOMAIN.fullmatch(name):
        yield Cause("metadata.name", f"{_value(name)}{_SUBDOMAIN_SAYS}")
    for key, value in (meta.get("labels") or {}).items():
        yield from qualified(key, "metadata.labels")
        if len(value) > PART_MAX:
            yield Cause("metadata.labels", f"{_value(value)}must be no more than {PART_MAX} characters")
        elif value and not _PART.fullmatch(value):
            yield Cause("metadata.labels", f"{_value(value)}a valid label must be an empty string or {_PART_SAYS}")
    yield from _annotations(meta.get("annotations") or {})
    for place, finalizer in enumerate(meta.get("finalizers") or ()):
        yield from _finalizer(place, finalizer)
    for ref in meta.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not ref.get(field):
                yield Cause(f"metadata.ownerReferences.{field}", f"{_value('')}must not be empty")


def fixed(old: Meta, asked: Meta) -> Iterator[Cause]:
    """What a write may not change. A value that is left out is taken from the old object."""
    for field in ("uid", "deletionTimestamp"):
        if asked.get(field) and asked[field] != old.get(field):
            yield Cause(f"metadata.{field}", f"{_value(asked[field])}field is immutable")
    fresh = [f for f in asked.get("finalizers") or () if f not in (old.get("finalizers") or ())]
    if fresh and "deletionTimestamp" in old:
        found = ", ".join(f'"{one}"' for one in fresh)
        says = "no new finalizers can be added if the object is being deleted, found new finalizers"
        yield Cause("metadata.finalizers", f"Forbidden: {says} []string{{{found}}}")


def qualified(key: str, field: str) -> Iterator[Cause]:
    """`name` or `domain/name`: the keys of labels, the names of finalizers."""
    prefix, slash, part = key.rpartition("/")
    if slash and (len(prefix) > NAME_MAX or not _SUBDOMAIN.fullmatch(prefix)):
        yield Cause(field, f"{_value(key)}prefix part {_SUBDOMAIN_SAYS}")
    if len(part) > PART_MAX:
        yield Cause(field, f"{_value(key)}name part must be no more than {PART_MAX} characters")
    elif not _PART.fullmatch(part):
        yield Cause(field, f"{_value(key)}{_PART_SAYS}")


def label(value: str, field: str) -> Iterator[Cause]:
    """A DNS label."""
    if len(value) > PART_MAX:
        yield Cause(field, f"{_value(value)}must be no more than {PART_MAX} characters")
    elif not _LABEL.fullmatch(value):
        yield Cause(field, f"{_value(value)}{_LABEL_SAYS}")


def _annotations(annotations: dict[str, str]) -> Iterator[Cause]:
    for key in annotations:
        yield from qualified(key.lower(), "metadata.annotations")
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > ANNOTATIONS_MAX:
        yield Cause("metadata.annotations", f"Too long: may not be more than {ANNOTATIONS_MAX} bytes")


def _finalizer(place: int, name: str) -> Iterator[Cause]:
    wrong = list(qualified(name, "metadata.finalizers"))
    yield from wrong
    if not wrong and "/" not in name and name not in _STANDARD_FINALIZERS:
        says = "name is neither a standard finalizer name nor is it fully qualified"
        yield Cause(f"metadata.finalizers[{place}]", f"{_value(name)}{says}")


def _value(value: str) -> str:
    return f'Invalid value: "{value}": '
