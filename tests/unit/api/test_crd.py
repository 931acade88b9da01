"""The CRD that is made from the types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from reconciler.api import crd

ROOT = Path(__file__).parents[3]


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _bare(node: Any) -> Any:
    """Without the words of fields, which docs/api.md has, too."""
    if isinstance(node, dict):
        return {key: _bare(value) for key, value in node.items() if key != "description" or isinstance(value, dict)}
    return node


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("properties", {}).values():
        yield from _nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _nodes(node[key])


def test_the_manifests_are_current() -> None:
    assert (ROOT / "deploy/chart/files/crd.yaml").read_text() == crd.as_yaml(crd.definition()), "run `make docs`"
    assert yaml.safe_load((ROOT / "deploy/base/crd.yaml").read_text()) == crd.definition(), "run `make docs`"


def test_the_schema_is_structural() -> None:
    for node in _nodes(_schema()):
        assert not {"$ref", "anyOf", "oneOf", "default"} & set(node)
        free = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        assert "type" in node or free


def test_the_name_is_at_most_40_characters_by_cel() -> None:
    assert _schema()["x-kubernetes-validations"] == [
        {
            "rule": "size(self.metadata.name) <= 40",
            "message": "the name is part of pod names: at most 40 characters",
        }
    ]


def test_counts_may_be_percentages_and_phases_need_an_image() -> None:
    spec = _bare(_schema())["properties"]["spec"]["properties"]
    assert spec["rollout"]["properties"]["maxUnavailable"] == {
        "x-kubernetes-int-or-string": True,
        "minimum": 1,
        "pattern": "^[0-9]*[1-9][0-9]*%$",
    }
    assert spec["rollout"]["properties"]["errorBudget"] == {
        "x-kubernetes-int-or-string": True,
        "minimum": 0,
        "pattern": "^[0-9]+%$",
    }
    assert spec["phases"]["properties"]["install"]["required"] == ["image"]
    assert spec["phases"]["properties"]["install"]["properties"]["hostPID"] == {"type": "boolean"}


def test_enums_are_closed() -> None:
    spec = _bare(_schema())["properties"]["spec"]["properties"]
    assert spec["upgrade"]["properties"]["strategy"] == {"type": "string", "enum": ["InPlace", "Reinstall"]}
    assert spec["uninstall"]["properties"]["whenInUse"] == {"type": "string", "enum": ["Force", "Wait"]}


def test_lists_with_names_are_maps_so_that_no_name_is_there_twice() -> None:
    spec = _bare(_schema())["properties"]["spec"]["properties"]
    keys = {name: spec[name]["x-kubernetes-list-map-keys"] for name in ("handlers", "snapshotters", "startupTaints")}
    assert keys == {"handlers": ["name"], "snapshotters": ["name"], "startupTaints": ["key", "effect"]}
    assert {spec[name]["x-kubernetes-list-type"] for name in keys} == {"map"}


def test_every_selector_knows_its_operators_and_their_values() -> None:
    spec = _bare(_schema())["properties"]["spec"]["properties"]
    for selector in (spec["nodeSelector"], spec["rollout"]["properties"]["order"]["items"]):
        expression = selector["properties"]["matchExpressions"]["items"]
        assert expression["properties"]["operator"]["enum"] == ["In", "NotIn", "DoesNotExist", "Exists"]
        assert [rule["message"] for rule in expression["x-kubernetes-validations"]] == [
            "In and NotIn need values, Exists and DoesNotExist take none"
        ]


def test_every_list_under_a_rule_has_a_limit() -> None:
    """The API server prices a rule by the longest list that it could be asked about, and refuses the CRD else."""
    unpriced = [n for n in _nodes(_schema()) if n.get("type") == "array" and _ruled(n) and "maxItems" not in n]
    assert unpriced == []


def _ruled(node: dict[str, Any]) -> bool:
    return any("x-kubernetes-validations" in inner for inner in _nodes(node))


def test_the_columns_answer_the_first_question() -> None:
    (version,) = crd.definition()["spec"]["versions"]
    shown = [(c["name"], c["jsonPath"]) for c in version["additionalPrinterColumns"] if not c["priority"]]
    assert shown == [
        ("Ready", ".status.summary.ready"),
        ("Stuck", ".status.nodes.stuck"),
        ("Failed", ".status.nodes.failed"),
        ("Stage", ".status.summary.stage"),
        ("Status", '.status.conditions[?(@.type=="Progressing")].reason'),
        ("Age", ".metadata.creationTimestamp"),
    ]
