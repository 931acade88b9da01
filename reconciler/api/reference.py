"""docs/api.md, from the types of the API: `python -m reconciler.api.reference > docs/api.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec

from reconciler.api import crd, descriptions, names
from reconciler.api.noderuntime import NodeRuntimeSpec, NodeRuntimeStatus

_HEAD = f"""# NodeRuntime

`{names.API_VERSION}`, cluster scope, short name `{names.SHORT_NAME}`; its name has at most {names.RUNTIME_NAME_MAX}
characters. `kubectl explain noderuntime.spec` says the same. This page is made by `make docs`.

Who may create a `NodeRuntime` is root on every node that it selects.
"""
_OTHERS = (
    ("Node, label", names.stage_label("RUNTIME"), "the controller: what the node is doing now; for eyes and selectors"),
    ("Node, label", names.present_label("RUNTIME"), "the controller: binaries and handlers are there"),
    (
        "Node, annotation",
        names.state_annotation("RUNTIME"),
        "the controller: the only store of progress; leave it alone",
    ),
    ("Node, annotation", names.REPORT_ANNOTATION, "the agent: what it has done, and what CRI serves"),
    ("Node, condition", names.SERVING_CONDITION, "the agent: whether containerd serves CRI, and why not"),
    ("Node, condition", names.CONTESTED_CONDITION, "the agent: a payload breaks the configuration again and again"),
    ("Node, annotation", names.retry_annotation("RUNTIME"), "you (`reconciler retry`): another try"),
    ("Node, annotation", names.skip_annotation("RUNTIME"), "you (`reconciler skip`): counts as clean on deletion"),
    (
        "NodeRuntime, annotation",
        names.CONFIRM_DESELECT_ANNOTATION,
        "you: yes, the selector may leave all installed nodes",
    ),
    ("pod, annotation", names.KILL_RETRY_ANNOTATION, "you: its kill is tried again as soon as containerd is back"),
    ("our namespace, ConfigMap", names.STOP_NAME, "you (`reconciler stop`): while it is there, nothing new begins"),
)
"""Where, name, and who writes it and what for. What a person writes has the value `true`."""


def page() -> str:
    """The whole page."""
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    parts = [_HEAD]
    for path, kind in (("spec", NodeRuntimeSpec), ("status", NodeRuntimeStatus)):
        parts.append(f"\n## {path}\n\n| field | type | default | meaning |\n|---|---|---|---|\n")
        parts += _rows("", kind, schema[path], {})
    parts.append("\n## On other objects\n\n| where | name | who writes it, and what for |\n|---|---|---|\n")
    parts += [f"| {where} | `{name}` | {words} |\n" for where, name, words in _OTHERS]
    parts.append("\nThe value of what you write is `true`.\n")
    return "".join(parts)


def _rows(path: str, kind: type[msgspec.Struct], schema: dict[str, Any], shown: dict[type, str]) -> Iterator[str]:
    """Of the fields of `kind`, each followed by those in it, unless they are `shown` already."""
    hints = get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        node = schema["properties"][field.encode_name]
        here = f"{path}{field.encode_name}"
        inner = next(descriptions.within(hints[field.name]), None)
        known = shown.get(inner) if inner is not None else None
        alike = f" Its fields are those of `{known}`." if known else ""
        yield f"| `{here}` | {_type(node)} | {_default(field)} | {node['description']}{alike} |\n"
        if inner is not None and not known:
            shown[inner] = here
            yield from _rows(f"{here}{'[]' if 'items' in node else ''}.", inner, node.get("items", node), shown)


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " \\| ".join(f"`{value}`" for value in node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        return "integer or percentage"
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    return str(node.get("type", "object")) + _limits(node)


def _limits(node: dict[str, Any]) -> str:
    lower, upper = node.get("minimum"), node.get("maximum")
    if lower is None and upper is None:
        return ""
    return f", at least {lower}" if upper is None else f", {lower} to {upper}"


def _default(field: msgspec.structs.FieldInfo) -> str:
    """Nothing for what is empty, or a struct with defaults of its own."""
    if field.required:
        return "required"
    value = field.default
    if value in (msgspec.NODEFAULT, None, "", ()) or isinstance(value, msgspec.Struct):
        return ""
    return f"`{msgspec.json.encode(value).decode().strip(chr(34))}`"


if __name__ == "__main__":
    sys.stdout.write(page())
