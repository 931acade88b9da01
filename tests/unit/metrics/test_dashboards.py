"""Dashboards: current, complete, and asking only for what exists."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from metrics import catalog
from metrics.dashboards.catalog import DASHBOARDS
from metrics.dashboards.model import Dashboard, Kind, Panel

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/observability/dashboards"
OF_A_SCRAPE = {"instance", "node", "le"}
"""Labels that no family has: the scrape gives them, and histograms their buckets' bound."""
SELECTED = re.compile(r"\b((?:runtime_reconciler|workqueue|rest_client|leader_election)_\w+)(?:\{([^}]*)\})?")
PANELS = [(d, p) for d in DASHBOARDS for p in d.panels]
each = pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=[f"{d.uid}/{p.title}" for d, p in PANELS])


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboard_is_current(dashboard: Dashboard) -> None:
    assert (FOLDER / f"{dashboard.uid}.json").read_text() == dashboard.text(), "run `make docs`"


def test_no_dashboard_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {dashboard.uid for dashboard in DASHBOARDS}


@each
def test_a_panel_says_what_it_shows(dashboard: Dashboard, panel: Panel) -> None:
    assert panel.description.endswith(".")
    assert panel.unit
    assert panel.queries
    assert panel.kind in (Kind.HEAT_MAP, Kind.TABLE) or all(query.legend for query in panel.queries)


@each
def test_a_panel_asks_for_metrics_and_labels_that_exist(dashboard: Dashboard, panel: Panel) -> None:
    for query in panel.queries:
        asked = SELECTED.findall(query.expr)
        assert asked
        labels = set(OF_A_SCRAPE)
        for name, selector in asked:
            family = catalog.families()[name]
            assert set(re.findall(r"(\w+)(?:=~|!=|!~|=)", selector)) <= {*family.labels, *OF_A_SCRAPE}
            labels |= set(family.labels)
        grouped = itertools.chain.from_iterable(g.split(", ") for g in re.findall(r"by \(([^)]*)\)", query.expr))
        assert set(grouped) <= labels
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels


@each
def test_a_panel_has_only_variables_of_its_dashboard(dashboard: Dashboard, panel: Panel) -> None:
    known = {variable.name for variable in dashboard.variables} | {"__rate_interval"}
    for query in panel.queries:
        assert set(re.findall(r"\$(\w+)", query.expr)) <= known


def test_runtime_and_node_can_be_chosen() -> None:
    chosen = {variable.name: variable for dashboard in DASHBOARDS for variable in dashboard.variables}
    assert {"runtime", "node"} <= set(chosen)
    for variable in chosen.values():
        assert variable.label in {*catalog.families()[variable.family].labels, *OF_A_SCRAPE}


def test_every_family_that_a_person_may_need_is_shown() -> None:
    asked = {name for _, panel in PANELS for query in panel.queries for name, _ in SELECTED.findall(query.expr)}
    shown = {catalog.families()[name].name for name in asked}
    assert {family.name for family in catalog.families().values()} - shown == {
        "runtime_reconciler_stuck_total"  # the gauge of stuck nodes shows the same
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_panels_lie_beside_each_other_and_not_on_each_other(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.document()["panels"]:
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert at["x"] + at["w"] <= 24
        assert not cells & taken
        taken |= cells
