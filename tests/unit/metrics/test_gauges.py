"""Gauges are read at the moment of a scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from metrics.agent import AgentCollector, AgentFigures
from metrics.controller import ControllerCollector, ControllerFigures, RuntimeFigures, TroubledNode

KATA = RuntimeFigures(
    stages={"ready": 4, "install": 2},
    total=6,
    done=4,
    ready=4,
    updating=2,
    stuck=2,
    failed=1,
    agentless=1,
    repairs=2,
    budget=1,
    spent=3,
    held="ErrorBudgetExceeded",
)


def shown(collector: Collector) -> set[str]:
    registry = CollectorRegistry()
    registry.register(collector)
    return {line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")}


def controller(**figures: object) -> set[str]:
    return shown(ControllerCollector(lambda: ControllerFigures(lease="lease", leads=True, **figures)))  # type: ignore[arg-type]


def test_a_runtime_shows_its_rollout_and_its_budget() -> None:
    lines = controller(runtimes={"kata": KATA})
    assert {
        'runtime_reconciler_nodes{runtime="kata",stage="ready"} 4.0',
        'runtime_reconciler_nodes{runtime="kata",stage="install"} 2.0',
        'runtime_reconciler_rollout_nodes{runtime="kata"} 6.0',
        'runtime_reconciler_rollout_done_nodes{runtime="kata"} 4.0',
        'runtime_reconciler_rollout_updating_nodes{runtime="kata"} 2.0',
        'runtime_reconciler_stuck_nodes{runtime="kata"} 2.0',
        'runtime_reconciler_failed_nodes{runtime="kata"} 1.0',
        'runtime_reconciler_agentless_nodes{runtime="kata"} 1.0',
        'runtime_reconciler_recent_repairs{runtime="kata"} 2.0',
        'runtime_reconciler_error_budget_nodes{runtime="kata"} 1.0',
        'runtime_reconciler_error_budget_used_nodes{runtime="kata"} 3.0',
        'runtime_reconciler_rollout_held{reason="ErrorBudgetExceeded",runtime="kata"} 1.0',
        'runtime_reconciler_rollout_held{reason="Paused",runtime="kata"} 0.0',
    } <= lines


def test_leading_watches_and_workers_are_told_of() -> None:
    lines = controller(silence={"nodes": 12.5}, at_work={"node": [1.0, 4.0], "noderuntime": []})
    assert {
        'leader_election_master_status{name="lease"} 1.0',
        'runtime_reconciler_watch_age_seconds{resource="nodes"} 12.5',
        'workqueue_unfinished_work_seconds{name="node"} 5.0',
        'workqueue_longest_running_processor_seconds{name="node"} 4.0',
        'workqueue_longest_running_processor_seconds{name="noderuntime"} 0.0',
        'runtime_reconciler_build_info{version="0.1.0"} 1.0',
    } <= lines


def test_at_most_fifty_nodes_have_a_series_and_stuck_ones_go_first() -> None:
    failed = [_node(f"a-{n}", "failed") for n in range(60)]
    lines = [line for line in controller(troubled=[*failed, _node("z", "stuck")]) if "troubled_node" in line]
    assert len(lines) == 50
    stuck = 'runtime_reconciler_troubled_node_seconds{node="z",runtime="kata",stage="install",state="stuck"} 7.0'
    assert stuck in lines


def _node(name: str, state: str) -> TroubledNode:
    return TroubledNode(runtime="kata", node=name, stage="install", state=state, seconds=7.0)


def test_an_agent_shows_how_long_containerd_has_been_down() -> None:
    lines = shown(AgentCollector(lambda: AgentFigures(serving=False, down=3.5, cri_missing=True)))
    assert {
        "runtime_reconciler_containerd_serving 0.0",
        "runtime_reconciler_containerd_down_seconds 3.5",
        "runtime_reconciler_cri_missing 1.0",
    } <= lines


def test_a_replica_that_is_not_there_shows_its_build_only() -> None:
    assert shown(ControllerCollector(lambda: None)) == {'runtime_reconciler_build_info{version="0.1.0"} 1.0'}
