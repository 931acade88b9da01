"""What an alert watches is there from the beginning: the rise of a series that was not there is not seen."""

from __future__ import annotations

import itertools

from prometheus_client import CollectorRegistry, generate_latest

from metrics.agent import AgentCollector, AgentFigures, Metrics
from metrics.kube import RequestMetrics, WatchMetrics


def test_counters_of_alerts_begin_at_zero_and_rise() -> None:
    registry = CollectorRegistry()
    counted = Metrics(registry)
    lines = generate_latest(registry).decode().splitlines()
    assert 'runtime_reconciler_config_undone_total{operation="configure"} 0.0' in lines
    assert 'runtime_reconciler_guard_put_backs_total{outcome="refused"} 0.0' in lines
    assert 'runtime_reconciler_containerd_given_up_total{result="revived"} 0.0' in lines
    counted.transaction("configure", "broken", "VerifyFailed", undone=True)
    counted.transaction("put back", "changed", "", undone=False)
    counted.given_up("revived")
    lines = generate_latest(registry).decode().splitlines()
    assert 'runtime_reconciler_config_undone_total{operation="configure"} 1.0' in lines
    assert 'runtime_reconciler_guard_put_backs_total{outcome="changed"} 1.0' in lines
    assert 'runtime_reconciler_containerd_given_up_total{result="revived"} 1.0' in lines


def test_two_of_one_registry_count_together() -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        Metrics(registry).restarted("agent")
    assert 'runtime_reconciler_containerd_restarts_total{initiator="agent"} 2.0' in generate_latest(registry).decode()


def test_an_agent_in_daily_use_serves_fewer_than_130_series() -> None:
    """There is one on every node of a fleet."""
    registry = CollectorRegistry()
    counted, requests, watches = Metrics(registry), RequestMetrics(registry), WatchMetrics(registry)
    for method in ("GET", "PATCH", "POST"):
        requests.request(method, "200", 0.1)
    for resource, kind in itertools.product(("nodes", "pods"), ("ADDED", "MODIFIED", "DELETED")):
        watches.event(resource, kind)
    for operation in ("configure", "unconfigure"):
        counted.transaction(operation, "changed", "", undone=False)
    for reason in ("NotServing", "ProcessChanged", "CallFailed"):
        counted.closed(reason)
    now = AgentFigures(serving=True, down=0.0, cri_missing=False, silence={"nodes": 1.0, "pods": 1.0})
    registry.register(AgentCollector(lambda: now))
    assert sum(len(family.samples) for family in registry.collect()) < 130
