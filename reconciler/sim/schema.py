"""What the API server does with a custom resource by its CRD's structural schema: prune, and validate.

After `k8s.io/apiextensions-apiserver` 1.34: an unknown field is pruned (and named, for a warning or a strict error),
anything else that does not fit refuses the write. CEL rules are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def pruned(value: Any, schema: Schema, path: str, unknown: list[str]) -> Any:
    """`value` without fields that the schema does not know; their paths go into `unknown`."""
    if isinstance(value, list) and "items" in schema:
        return [pruned(v, schema["items"], f"{path}[{i}]", unknown) for i, v in enumerate(value)]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return value
    fields = schema.get("properties")
    if fields is None:
        return value
    kept = {}
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        if key in fields:
            kept[key] = pruned(inner, fields[key], here, unknown)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            kept[key] = inner
        else:
            unknown.append(here)
    return kept


def errors(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Everything about `value` that the schema refuses."""
    if schema.get("x-kubernetes-int-or-string"):
        wrong = isinstance(value, bool) or not isinstance(value, int | str)
    else:
        wrong = not _is(value, schema.get("type", ""))
    if wrong:
        yield f"{path}: Invalid value: in body must be of type {schema.get('type', 'integer,string')}"
        return
    yield from _limits(value, schema, path)
    if isinstance(value, list):
        yield from _duplicates(value, schema.get("x-kubernetes-list-map-keys"), path)
        for place, item in enumerate(value):
            yield from errors(item, schema.get("items", {}), f"{path}[{place}]")
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield f"{path}.{key}: Required value"
        for key, inner in value.items():
            below = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if isinstance(below, dict):
                yield from errors(inner, below, f"{path}.{key}" if path else key)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind in ("boolean", "")
    return not kind or isinstance(value, _TYPES[kind])


def _limits(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}: supported values: {', '.join(schema['enum'])}"
    if isinstance(value, str):
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            yield f"{path}: Invalid value: {value!r}: in body should match '{schema['pattern']}'"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: Invalid value: {value!r}: its length is out of bounds"
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: Invalid value: {value}: out of bounds"
    elif isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
        yield f"{path}: Too many: {len(value)}: must have at most {schema['maxItems']} items"


def _duplicates(items: list[Any], keys: list[str] | None, path: str) -> Iterator[str]:
    seen = []
    for place, item in enumerate(items if keys else ()):
        identity = [item.get(key) for key in keys or ()] if isinstance(item, dict) else item
        if identity in seen:
            yield f"{path}[{place}]: Duplicate value: {identity}"
        seen.append(identity)
