"""The fields of NodeRuntime's spec as its CRD has them, and values that the schema refuses, made from it.

A path is written as in the CRD: `handlers[].name`; of an object itself `handlers[0].name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from reconciler.api import crd

Schema = dict[str, Any]

SPEC: Schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
_WRONG_TYPE: dict[str, Any] = {"object": "text", "array": "text", "string": 7, "integer": "7", "boolean": "true"}
_ODD_TEXTS = ("", "No-Such Value", "relative/path")


def paths(schema: Schema = SPEC, path: str = "") -> Iterator[str]:
    """Every field below `schema`, items of lists included, in its order."""
    for name, below in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        yield from paths(below, here)
    if "items" in schema:
        yield f"{path}[]"
        yield from paths(schema["items"], f"{path}[]")


def at(path: str) -> Schema:
    """The schema of one field. Raises KeyError."""
    node = SPEC
    for part in path.replace("[]", ".[]").split("."):
        node = node["items"] if part == "[]" else node["properties"][part]
    return node


def pattern_of(path: str) -> str:
    """`handlers[0].name` → `handlers[].name`."""
    return re.sub(r"\[\d+\]", "[]", path)


def required(path: str) -> bool:
    """Whether the object that holds this field cannot do without it."""
    if path.endswith("[]"):
        return False
    holder, _, name = path.rpartition(".")
    schema = at(holder) if holder else SPEC
    return name in schema.get("required", ())


def refused(path: str) -> list[Any]:
    """Values of the wrong type, out of bounds, or without what is required: each of them the schema refuses."""
    schema = at(path)
    if schema.get("x-kubernetes-int-or-string"):
        few = schema["minimum"] - 1
        return [True, "many", few, f"{few}%", ["1"]]
    kind = schema.get("type", "")
    found = [_WRONG_TYPE[kind]] if kind else []
    if "minimum" in schema:
        found.append(schema["minimum"] - 1)
    if "maximum" in schema:
        found.append(schema["maximum"] + 1)
    if "enum" in schema:
        found.append("NoSuchValue")
    if "pattern" in schema:
        found.append(next(text for text in _ODD_TEXTS if re.search(schema["pattern"], text) is None))
    if schema.get("minLength", 0) > 0:
        found.append("")
    if "maxLength" in schema:
        found.append(("/" if schema.get("pattern") == "^/" else "") + "x" * (schema["maxLength"] + 1))
    if schema.get("required"):
        found.append({})
    return found
