"""Alerts: current, tried both ways by promtool, with a runbook each, on names that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from metrics import catalog, kube, rules
from metrics.alerts import ALERTS, Alert
from reconciler.api import names

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs/runbooks"
CASES = [
    case for path in sorted((ROOT / "tests/rules").glob("*.yaml")) for case in yaml.safe_load(path.read_text())["tests"]
]
SECTIONS = ["## Meaning", "## Impact", "## See it", "## Do", "## Ends when"]
each = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


def looks(alert: Alert) -> list[dict[str, Any]]:
    return [look for case in CASES for look in case["alert_rule_test"] if look["alertname"] == alert.name]


def test_the_rules_are_current() -> None:
    assert (ROOT / "deploy/observability/alerts.yaml").read_text() == rules.text(), "run `make docs`"


@each
def test_promtool_sees_it_fire(alert: Alert) -> None:
    assert any(look["exp_alerts"] for look in looks(alert))


@each
def test_promtool_sees_it_silent_in_a_case_of_its_own(alert: Alert) -> None:
    silent = [c for c in CASES if {look["alertname"] for look in c["alert_rule_test"]} == {alert.name}]
    assert any(not look["exp_alerts"] for case in silent for look in case["alert_rule_test"])
    assert any(all(not look["exp_alerts"] for look in case["alert_rule_test"]) for case in silent)


@each
def test_it_has_a_runbook_with_every_section(alert: Alert) -> None:
    page = (RUNBOOKS / f"{alert.name}.md").read_text()
    assert page.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## .*$", page, re.M) == SECTIONS


def test_no_runbook_is_left_without_its_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {alert.name for alert in ALERTS}


@each
def test_its_link_leads_to_its_runbook(alert: Alert) -> None:
    rule = next(r for r in rules.document()["groups"][0]["rules"] if r["alert"] == alert.name)
    base, _, page = rule["annotations"]["runbook_url"].rpartition("/")
    assert (base, page) == (rules.RUNBOOKS, f"{alert.name}.md")


@each
def test_it_asks_for_metrics_that_exist(alert: Alert) -> None:
    asked = re.findall(r"\b(?:runtime_reconciler|workqueue|rest_client|leader_election)_\w+", alert.expr)
    assert asked
    assert set(asked) <= set(catalog.families())


def test_the_lease_that_is_asked_for_is_ours() -> None:
    assert kube.LEASE == names.LEASE_NAME


def test_a_rehearsal_is_the_same_rules_with_shorter_times() -> None:
    short = {rule["alert"]: rule for rule in rules.document(scale=0.01)["groups"][0]["rules"]}
    assert short["RuntimeReconcilerRolloutNotProgressing"]["for"] == "12s"
    assert "[6s]" in short["RuntimeReconcilerRolloutNotProgressing"]["expr"]
    assert "[9s]" in short["RuntimeReconcilerConfigUndone"]["expr"]
    assert short["RuntimeReconcilerNodeStuck"]["expr"] == "max by (runtime) (runtime_reconciler_stuck_nodes) > 0"
