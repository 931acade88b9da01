"""What a field is for is said once, below the field, and is there in the CRD and on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.api import crd, descriptions, reference
from reconciler.api.noderuntime import NodeRuntimeSpec, Rollout

ROOT = Path(__file__).parents[3]


def nodes(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every field below `schema`, with its path."""
    found = []
    for name, node in schema.get("properties", {}).items():
        below = node.get("items", node)
        found += [(f"{path}.{name}", node), *nodes(below, f"{path}.{name}")]
    return found


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/api.md").read_text() == reference.page(), "run `make docs`"


def test_every_field_of_the_crd_says_what_it_is_for() -> None:
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields = nodes(schema["spec"], "spec") + nodes(schema["status"], "status")
    assert len(fields) > 150
    assert [path for path, node in fields if not node.get("description")] == []


def test_the_words_are_those_below_the_field() -> None:
    assert descriptions.of(Rollout)["bakeSeconds"] == (
        "Seconds that a node must stay healthy, with its handlers served, before it counts as done."
    )


def test_a_field_without_words_is_refused() -> None:
    class Silent(msgspec.Struct):
        spoken: int = 0
        """Something."""
        unspoken: int = 0

    with pytest.raises(ValueError, match=r"Silent\.unspoken"):
        descriptions.of(Silent)


def test_a_struct_is_shown_once_on_the_page() -> None:
    page = reference.page()
    assert page.count(".timeoutSeconds` |") == 1
    assert "| `phases.install` | object |  | Puts binaries on the node." in page
    assert "Its fields are those of `phases.preInstall`. |" in page
    assert "| `rollout.maxUnavailable` | integer or percentage | `1` |" in page
    assert [one.__name__ for one in descriptions.structs(NodeRuntimeSpec)].count("Phase") == 1
