"""The three kinds of patch that the API server takes."""

from __future__ import annotations

from typing import Any

MERGE_KEYS = {"conditions": "type", "taints": "key", "addresses": "type", "containers": "name", "env": "name"}
"""Lists that a strategic patch merges by a key (of the fields that are used here)."""


class PatchError(Exception):
    """The patch cannot be applied; nothing is changed."""


def merge_patch(old: Any, patch: Any) -> Any:
    """RFC 7386: null takes away, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_patch(old: Any, patch: Any) -> Any:
    """A merge patch that merges the lists of MERGE_KEYS entry by entry."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif key in MERGE_KEYS and isinstance(value, list) and all(isinstance(v, dict) for v in value):
            result[key] = _merge_list(result.get(key) or [], value, MERGE_KEYS[key])
        else:
            result[key] = strategic_patch(result.get(key), value)
    return result


def json_patch(old: Any, operations: Any) -> Any:
    """RFC 6902. Raises PatchError for a failed `test` or a path that is not there."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    for operation in operations:
        old = _operate(old, operation)
    return old


def _merge_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(old)
    for entry in patch:
        place = next((i for i, o in enumerate(result) if o.get(key) == entry.get(key)), None)
        if entry.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(entry)
        else:
            result[place] = strategic_patch(result[place], entry)
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    parts = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
    if not parts:
        raise PatchError("the whole document cannot be patched")
    parent = document
    try:
        for part in parts[:-1]:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        return _apply(document, parent, parts[-1], operation)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise PatchError(f"path {operation['path']} is not there") from error


def _apply(document: Any, parent: Any, last: str, operation: dict[str, Any]) -> Any:
    kind = operation["op"]
    here: Any = last if isinstance(parent, dict) else (len(parent) if last == "-" else int(last))
    if kind == "test":
        if parent[here] != operation["value"]:
            raise PatchError(f"testing path {operation['path']} failed")
    elif kind == "remove":
        del parent[here]
    elif kind == "replace":
        parent[here] = _checked(parent, here, operation)
    elif kind == "add":
        if isinstance(parent, list):
            parent.insert(here, operation["value"])
        else:
            parent[here] = operation["value"]
    else:
        raise PatchError(f"operation {kind} is not supported")
    return document


def _checked(parent: Any, here: Any, operation: dict[str, Any]) -> Any:
    parent[here]  # replacing what is not there is an error
    return operation["value"]
