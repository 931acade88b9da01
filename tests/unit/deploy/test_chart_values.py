"""values.yaml and its schema say the same; what helm makes of them is `make chart`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from reconciler.hostconfig.distribution import KINDS

CHART = Path(__file__).parents[3] / "deploy/chart"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
HELMS_OWN = {"global"}


def _paths(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Values that the schema names; a free map is one value."""
    if "properties" not in schema:
        return {prefix}
    return {path for key, child in schema["properties"].items() for path in _paths(child, f"{prefix}/{key}")}


def _defaults(values: Any, known: set[str], prefix: str = "") -> set[str]:
    if prefix in known or not isinstance(values, dict):
        return {prefix}
    return {path for key, child in values.items() for path in _defaults(child, known, f"{prefix}/{key}")}


def test_every_value_of_the_schema_has_a_default_and_the_other_way_round() -> None:
    known = {path for path in _paths(SCHEMA) if path.split("/")[1] not in HELMS_OWN}
    assert _defaults(yaml.safe_load((CHART / "values.yaml").read_text()), known) == known


def test_a_name_that_the_schema_does_not_know_is_refused_at_every_level() -> None:
    def closed(schema: dict[str, Any]) -> bool:
        children = schema.get("properties", {}).values()
        return ("properties" not in schema or schema["additionalProperties"] is False) and all(map(closed, children))

    assert closed({**SCHEMA, "properties": {k: v for k, v in SCHEMA["properties"].items() if k not in HELMS_OWN}})


def test_the_distributions_are_those_that_the_agent_knows() -> None:
    known = SCHEMA["properties"]["agent"]["properties"]["distribution"]["enum"]
    assert known == ["containerd", *(kind.name for kind in KINDS)]
