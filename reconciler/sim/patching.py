"""The three patch types of the API, as pure functions: none of them changes what it is given.

Merge patch: RFC 7386. JSON patch: RFC 6902 (a failed `test` is 422). Strategic merge patch: lists with a
merge key (conditions, containers, volumes, …) are merged by it; of the directives only `$patch: delete`.
"""

from __future__ import annotations

from typing import Any

from reconciler.kube.transport import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from reconciler.sim.failures import bad_request, unprocessable, unsupported

MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "addresses": "type",
    "ownerReferences": "uid",
}
"""Field → merge key, from the `patchMergeKey` tags of `k8s.io/api`. Taints have none: they are replaced."""
SETS = {"finalizers"}
"""Lists of plain values with patchStrategy=merge."""


def kind_of(content_type: str, *, built_in: bool) -> str:
    """Which patch that is. Raises ApiFailure 415; strategic merge is for built-in kinds only."""
    kind = content_type.partition(";")[0].strip()
    offered = [JSON_PATCH, MERGE_PATCH, *([STRATEGIC_MERGE_PATCH] if built_in else ())]
    if kind not in offered:
        raise unsupported(offered)
    return kind


def apply(obj: Any, patch: Any, kind: str) -> Any:
    """`obj` after `patch`. Raises ApiFailure: 400 on nonsense, 422 on what cannot be carried out."""
    if kind == MERGE_PATCH:
        return merge(obj, _mapping(patch))
    if kind == STRATEGIC_MERGE_PATCH:
        return strategic(obj, _mapping(patch))
    return json_patch(obj, patch)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """As `merge`, but lists that have a merge key are merged by it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merged_list(key, result.get(key) or [], value)
        else:
            result[key] = strategic(result.get(key), value)
    return result


def _merged_list(field: str, there: list[Any], patch: list[Any]) -> list[Any]:
    if field in SETS:
        return [*there, *(v for v in patch if v not in there)]
    merge_key = MERGE_KEYS.get(field)
    if merge_key is None:
        return patch
    merged = {item[merge_key]: item for item in there}
    for item in patch:
        if merge_key not in item:
            raise bad_request(f"{field}: an element of the patch has no {merge_key!r}")
        if item.get("$patch") == "delete":
            merged.pop(item[merge_key], None)
        else:
            merged[item[merge_key]] = strategic(merged.get(item[merge_key]), item)
    return list(merged.values())


def json_patch(obj: Any, operations: Any) -> Any:
    """RFC 6902: add, remove, replace, test, copy, move."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    for operation in operations:
        obj = _operate(obj, operation)
    return obj


def _operate(obj: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation.get("path", ""))
    match operation.get("op"):
        case "test":
            if _read(obj, path) != operation.get("value"):
                raise unprocessable()
            return obj
        case "add":
            return _write(obj, path, operation.get("value"), add=True)
        case "replace":
            _read(obj, path)
            return _write(obj, path, operation.get("value"), add=False)
        case "remove":
            _read(obj, path)
            return _remove(obj, path)
        case "copy":
            return _write(obj, path, _read(obj, _pointer(operation.get("from", ""))), add=True)
        case "move":
            source = _pointer(operation.get("from", ""))
            value = _read(obj, source)
            return _write(_remove(obj, source), path, value, add=True)
    raise unprocessable()


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise bad_request(f"JSON pointer {text!r} does not begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _read(obj: Any, path: list[str]) -> Any:
    for part in path:
        try:
            obj = obj[int(part)] if isinstance(obj, list) else obj[part]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise unprocessable() from error
    return obj


def _write(obj: Any, path: list[str], value: Any, *, add: bool) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(obj, list):
        return _write_item(obj, head, rest, value, add=add)
    if not isinstance(obj, dict) or (rest and head not in obj):
        raise unprocessable()
    return {**obj, head: _write(obj.get(head), rest, value, add=add)}


def _write_item(items: list[Any], head: str, rest: list[str], value: Any, *, add: bool) -> list[Any]:
    index = len(items) if head == "-" else int(head)
    if index > len(items):
        raise unprocessable()
    if not rest and add:
        return [*items[:index], value, *items[index:]]
    return [*items[:index], _write(items[index], rest, value, add=add), *items[index + 1 :]]


def _remove(obj: Any, path: list[str]) -> Any:
    head, rest = path[0], path[1:]
    if isinstance(obj, list):
        index = int(head)
        return [*obj[:index], *([_remove(obj[index], rest)] if rest else []), *obj[index + 1 :]]
    if rest:
        return {**obj, head: _remove(obj[head], rest)}
    return {key: value for key, value in obj.items() if key != head}


def _mapping(patch: Any) -> dict[str, Any]:
    if not isinstance(patch, dict):
        raise bad_request("a merge patch is an object")
    return patch
