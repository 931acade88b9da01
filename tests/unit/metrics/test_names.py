"""Names and labels are API; the page that lists them is current."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from metrics import reference
from metrics.controller import NodeCollector
from metrics.kube import LeaderCollector

ROOT = Path(__file__).parents[3]


def test_the_page_of_metrics_is_current() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == reference.page(), "run `make docs`"


def test_no_label_is_unbounded() -> None:
    for forbidden in ("`node`", "`pod`", "`message`", "`error`", "`namespace`", "`uid`"):
        assert forbidden not in reference.page()


def test_the_leader_says_so_when_scraped() -> None:
    leads = [False]
    registry = CollectorRegistry()
    registry.register(LeaderCollector("lease", lambda: leads[0]))
    assert b'leader_election_master_status{name="lease"} 0.0' in generate_latest(registry)
    leads[0] = True
    assert b'leader_election_master_status{name="lease"} 1.0' in generate_latest(registry)


def test_node_gauges_are_counted_when_scraped() -> None:
    registry = CollectorRegistry()
    registry.register(NodeCollector(lambda: {"kata": {"ready": 4}}, lambda: {"kata": (2, 1)}))
    shown = generate_latest(registry).decode()
    assert 'runtime_reconciler_nodes{runtime="kata",stage="ready"} 4.0' in shown
    assert 'runtime_reconciler_stuck_nodes{runtime="kata"} 2.0' in shown
    assert 'runtime_reconciler_failed_nodes{runtime="kata"} 1.0' in shown
