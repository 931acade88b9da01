"""Names, labels and units are API; the page that lists them is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics import catalog, reference
from metrics.families import Family

ROOT = Path(__file__).parents[3]
FAMILIES = sorted(set(catalog.families().values()), key=lambda family: family.name)
OF_THE_FIELD = ("leader_election_", "rest_client_", "workqueue_")


def test_the_page_of_metrics_is_current() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == reference.page(), "run `make docs`"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_has_the_prefix_a_meaning_and_a_unit(family: Family) -> None:
    assert family.name.startswith(("runtime_reconciler_", *OF_THE_FIELD))
    assert family.help.endswith(".")
    assert family.unit


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_tells_its_kind(family: Family) -> None:
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert (family.unit == "seconds") == ("_seconds" in family.name)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_label_is_unbounded(family: Family) -> None:
    unbounded = {"node", "pod", "message", "error", "namespace", "uid"} & set(family.labels)
    assert unbounded == ({"node"} if family.name == "runtime_reconciler_troubled_node_seconds" else set())


def test_no_name_is_given_twice() -> None:
    names = [family.name for _, module in catalog.SUBJECTS for family in catalog.declared(module)]
    assert len(names) == len(set(names))
