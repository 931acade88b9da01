"""The CustomResourceDefinition, made from the types of `reconciler.api.noderuntime`.

A structural schema: no references, no unions with null. Maps of anything keep unknown fields. What a type cannot
say is added by path (`_ADDED`); lists have a limit because the API server prices every CEL rule by it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.api import descriptions, names
from reconciler.api.noderuntime import NodeRuntimeSpec, NodeRuntimeStatus
from reconciler.api.validation import EXISTENCE_OPERATORS, SET_OPERATORS, SOCKET_PATH_MAX, TAINT_EFFECTS

_KEPT = ("type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "description")
COLUMNS = (
    ("Ready", "string", ".status.summary.ready", 0),
    ("Stuck", "integer", ".status.nodes.stuck", 0),
    ("Failed", "integer", ".status.nodes.failed", 0),
    ("Stage", "string", ".status.summary.stage", 0),
    ("Status", "string", '.status.conditions[?(@.type=="Progressing")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Updating", "integer", ".status.nodes.updating", 1),
    ("Degraded", "string", '.status.conditions[?(@.type=="Degraded")].reason', 1),
    ("Revision", "string", ".status.revision", 1),
)
"""Of `kubectl get noderuntimes`: name, type, path, and 1 for those that only `-o wide` shows."""

_PHASES = ("preInstall", "install", "uninstall", "postUninstall")
_SELECTORS = ("nodeSelector", "rollout.order[]")
_SELECTOR_VALUES = {
    "rule": "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
    " : !has(self.values) || size(self.values) == 0",
    "message": "In and NotIn need values, Exists and DoesNotExist take none",
}
_OWN_ADDRESS = {
    "rule": "self.all(s, self.exists_one(t, t.address == s.address))",
    "message": "two snapshotters cannot listen on one address",
}
_OWN_CLASS = {
    "rule": "self.all(h, !has(h.runtimeClass)"
    " || self.exists_one(o, has(o.runtimeClass) && o.runtimeClass.name == h.runtimeClass.name))",
    "message": "two handlers cannot have one RuntimeClass",
}


def _keyed(limit: int, *keys: str) -> dict[str, Any]:
    """A list whose items are told apart by `keys`: no two may have the same."""
    return {"maxItems": limit, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]}


_SECRET = {"type": "string", "minLength": 1, "description": "Name of a Secret of our namespace."}
_ADDED: dict[str, dict[str, Any]] = {
    "handlers": {**_keyed(64, "name"), "x-kubernetes-validations": [_OWN_CLASS]},
    "snapshotters": {**_keyed(16, "name"), "x-kubernetes-validations": [_OWN_ADDRESS]},
    "snapshotters[].address": {"pattern": "^/", "maxLength": SOCKET_PATH_MAX},
    "startupTaints": _keyed(64, "key", "effect"),
    "startupTaints[].effect": {"enum": [*TAINT_EFFECTS]},
    "imagePullSecrets[]": {"required": ["name"], "properties": {"name": _SECRET}},
    "rollout.order": {"maxItems": 16},
    "rollout.maxUnavailable": {"minimum": 1, "pattern": "^[0-9]*[1-9][0-9]*%$"},
    "rollout.errorBudget": {"minimum": 0, "pattern": "^[0-9]+%$"},
    **{f"{path}.matchExpressions": {"maxItems": 32} for path in _SELECTORS},
    **{f"{path}.matchExpressions[]": {"x-kubernetes-validations": [_SELECTOR_VALUES]} for path in _SELECTORS},
    **{f"{path}.matchExpressions[].values": {"maxItems": 256} for path in _SELECTORS},
    **{f"{path}.matchExpressions[].operator": {"enum": [*SET_OPERATORS, *EXISTENCE_OPERATORS]} for path in _SELECTORS},
    **{f"phases.{phase}.image": {"minLength": 1} for phase in _PHASES},
    **{f"phases.{phase}.imagePullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]} for phase in _PHASES},
}


def definition() -> dict[str, Any]:
    """The whole CRD as plain data."""
    short = {"rule": f"size(self.metadata.name) <= {names.RUNTIME_NAME_MAX}"}
    short["message"] = f"the name is part of pod names: at most {names.RUNTIME_NAME_MAX} characters"
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _completed(_schema(NodeRuntimeSpec)),
            "status": _schema(NodeRuntimeStatus),
        },
        "x-kubernetes-validations": [short],
    }
    columns = [
        {"name": name, "type": kind, "jsonPath": path, "priority": priority} for name, kind, path, priority in COLUMNS
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Cluster",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def as_yaml(document: dict[str, Any]) -> str:
    """`document` as YAML: JSON is YAML, and needs no library."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _schema(kind: type[Any]) -> dict[str, Any]:
    (root,), definitions = msgspec.json.schema_components([kind], ref_template="{name}")
    described = {one.__name__: descriptions.of(one) for one in descriptions.structs(kind)}
    for name, node in definitions.items():
        node.pop("description", None)  # of the type: each field says what it is there
        for field, words in described.get(name, {}).items():
            node["properties"][field]["description"] = words
    return _structural(root, definitions)


def _completed(spec: dict[str, Any]) -> dict[str, Any]:
    """`spec` with what is added by path. Raises KeyError for a path that is not there."""
    for path, added in _ADDED.items():
        node = spec
        for part in path.split("."):
            node = node["properties"][part.removesuffix("[]")]
            if part.endswith("[]"):
                node = node["items"]
        node.update(added)
    return spec


def _structural(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    said = {"description": node["description"]} if "description" in node else {}
    if "$ref" in node:
        return {**_structural(definitions[node["$ref"]], definitions), **said}
    if "anyOf" in node:
        return {**_union([n for n in node["anyOf"] if n.get("type") != "null"], definitions), **said}
    result = {key: node[key] for key in _KEPT if key in node}
    if node.get("format") == "date-time":
        result["format"] = "date-time"
    if node.get("type") == "array":
        result["items"] = _structural(node.get("items", {}), definitions)
    if "properties" in node:
        result["properties"] = {k: _structural(v, definitions) for k, v in node["properties"].items()}
    elif node.get("type") == "object":
        values = node.get("additionalProperties")
        if isinstance(values, dict) and values:
            result["additionalProperties"] = _structural(values, definitions)
        else:
            result["x-kubernetes-preserve-unknown-fields"] = True
    if "enum" in result:
        result.setdefault("type", "string")
    if not set(result) - {"description"}:
        return {"x-kubernetes-preserve-unknown-fields": True, **said}
    return result


def _union(members: list[dict[str, Any]], definitions: dict[str, Any]) -> dict[str, Any]:
    if len(members) == 1:
        return _structural(members[0], definitions)
    return {"x-kubernetes-int-or-string": True}
