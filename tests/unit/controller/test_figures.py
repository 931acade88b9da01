"""What a scrape of the controller shows, and that a large fleet does not make it large."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from metrics.controller import ControllerCollector, ControllerFigures, ControllerMetrics
from metrics.kube import QueueMetrics, RequestMetrics, WatchMetrics
from reconciler.api.meta import ObjectMeta
from reconciler.api.node import NodeState, Problem, Stage
from reconciler.api.noderuntime import Canary, NodeRuntime, NodeRuntimeSpec, NodeRuntimeStatus, Rollout
from reconciler.controller import figures
from reconciler.controller.world import Outlook, Stopping, World
from reconciler.kube.store import Store
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.rollout import View

NOW = datetime(2026, 11, 30, 3, 0, 0, tzinfo=UTC)
SINCE = datetime(2026, 11, 30, 2, 59, 0, tzinfo=UTC)


def outlook(node: str, stage: Stage = Stage.READY, **view: Any) -> Outlook:
    resting = {"at_rest": stage in (Stage.ABSENT, Stage.READY, Stage.FAILED), "done": stage is Stage.READY}
    state = None if stage is Stage.ABSENT else NodeState(uid="u", stage=stage, since=SINCE)
    return Outlook(
        view=View(node=node, **{**resting, **view}),
        wait=Wait(reason="x", awaits=Signal.NOTHING),
        state=state,
        counted=True,
    )


def world(
    *outlooks: Outlook, rollout: Rollout = Rollout(), paused: bool = False, runtimes: tuple[str, ...] = ()
) -> World:
    made = World(namespace="n", nodes=Store(), pods=Store(), runtimes=Store(), revisions=Store(), classes=Store())
    for name in runtimes or ("kata",):
        made.runtimes.put(
            NodeRuntime(
                metadata=ObjectMeta(name=name, resource_version="1"),
                spec=NodeRuntimeSpec(rollout=rollout, paused=paused),
                status=NodeRuntimeStatus(),
            )
        )
        made.outlooks[name] = {o.view.node: o for o in outlooks}
    return made


def test_nodes_are_counted_by_where_they_are_and_should_be() -> None:
    found = figures.runtimes(
        world(
            outlook("a"),
            outlook("b", node_ready=False),
            outlook("c", Stage.INSTALL, stuck=True),
            outlook("d", Stage.FAILED, failed=True),
            outlook("e", Stage.ABSENT),
            rollout=Rollout(error_budget="40%"),
        ),
        NOW,
    )["kata"]
    assert found.stages == {"ready": 2, "install": 1, "failed": 1, "absent": 1}
    assert (found.total, found.done, found.ready, found.updating) == (5, 1, 1, 1)
    assert (found.stuck, found.failed, found.budget, found.spent) == (1, 1, 2, 2)


def test_a_node_that_is_clean_is_done_when_the_runtime_goes() -> None:
    found = figures.runtimes(
        world(outlook("a", Stage.ABSENT, removal=True), outlook("b", Stage.UNINSTALL, removal=True)), NOW
    )["kata"]
    assert (found.total, found.done, found.ready) == (2, 1, 0)


def test_what_holds_a_rollout_is_named() -> None:
    waits = outlook("a", Stage.ABSENT, wants_slot=True)
    broken = outlook("b", Stage.INSTALL, stuck=True)
    assert figures.runtimes(world(waits), NOW)["kata"].held == ""
    assert figures.runtimes(world(waits, paused=True), NOW)["kata"].held == "Paused"
    assert figures.runtimes(world(waits, broken), NOW)["kata"].held == "ErrorBudgetExceeded"
    waiting = Rollout(canary=Canary(count=1, pause=True))
    assert figures.runtimes(world(waits, outlook("c"), rollout=waiting), NOW)["kata"].held == "CanaryPaused"
    stopped = world(waits, paused=True)
    stopped.stopping = Stopping("stopped by ops@host")
    assert figures.runtimes(stopped, NOW)["kata"].held == "Stopped"
    refused = world(waits)
    refused.problems["kata"] = Problem("HandlerConflict")
    assert figures.runtimes(refused, NOW)["kata"].held == "Problem"


def test_a_canary_at_work_holds_nothing() -> None:
    rollout = Rollout(canary=Canary(count=1))
    found = figures.runtimes(
        world(outlook("a", Stage.INSTALL), outlook("b", Stage.ABSENT, wants_slot=True), rollout=rollout), NOW
    )
    assert found["kata"].held == ""


def test_repairs_of_the_last_hour_are_counted() -> None:
    recent, old = NOW - timedelta(minutes=59), NOW - timedelta(minutes=61)
    state = NodeState(uid="u", stage=Stage.READY, since=SINCE, repairs=(old, recent))
    repaired = replace(outlook("a"), state=state)
    assert figures.runtimes(world(repaired), NOW)["kata"].repairs == 1


def test_nodes_without_an_agent_are_counted() -> None:
    made = world(outlook("a"), outlook("b"))
    made.agent_lost = {"b": NOW, "somebody-elses": NOW}
    assert figures.runtimes(made, NOW)["kata"].agentless == 1


def test_a_troubled_node_says_how_long_it_has_been_in_its_stage() -> None:
    (found,) = figures.troubled(world(outlook("a"), outlook("b", Stage.INSTALL, stuck=True)), NOW)
    assert (found.node, found.stage, found.state, found.seconds) == ("b", "install", "stuck", 60.0)


def test_five_thousand_nodes_and_three_runtimes_make_fewer_than_fifteen_hundred_series() -> None:
    """Every value that a label can have, all at once, with 200 nodes of each runtime in trouble."""
    names = ("gvisor", "kata", "wasm")
    stages = list(Stage)
    nodes = [outlook(f"node-{n}", stages[n % len(stages)], stuck=n < 100, failed=100 <= n < 200) for n in range(5000)]
    fleet = world(*nodes, runtimes=names)
    registry = CollectorRegistry()
    _count_everything(registry, names)
    watches = ("nodes", "pods", "noderuntimes", "controllerrevisions", "runtimeclasses", "daemonsets")
    now = ControllerFigures(
        lease="lease",
        leads=True,
        silence=dict.fromkeys(watches, 1.0),
        at_work={"node": [1.0], "noderuntime": [1.0]},
        runtimes=figures.runtimes(fleet, NOW),
        troubled=figures.troubled(fleet, NOW),
    )
    registry.register(ControllerCollector(lambda: now))
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert sum(1 for sample in samples if "node" in sample.labels) == 50
    assert sum(sample.value for sample in samples if sample.name == "runtime_reconciler_nodes") == 15000
    assert len(samples) < 1500


def _count_everything(registry: CollectorRegistry, runtimes: tuple[str, ...]) -> None:
    counted, requests = ControllerMetrics(registry), RequestMetrics(registry)
    for runtime, stage in itertools.product(runtimes, Stage):
        counted.stuck(runtime, stage)
        if stage not in (Stage.ABSENT, Stage.READY, Stage.FAILED):  # nothing is at work in these
            counted.phase(runtime, stage, "ok", 1.0)
            counted.phase(runtime, stage, "failed", 1.0)
    for where in ("node", "noderuntime", "nodes", "pods", "noderuntimes", "controllerrevisions", "runtimeclasses"):
        counted.forbidden(where)
    codes = ("200", "201", "400", "401", "403", "404", "409", "410", "422", "429", "500", "503", "504", "<error>")
    for method, code in itertools.product(("GET", "POST", "PATCH", "PUT", "DELETE"), codes):
        requests.request(method, code, 0.1)
    watches, queues = WatchMetrics(registry), QueueMetrics(registry)
    for resource in ("nodes", "pods", "noderuntimes", "controllerrevisions", "runtimeclasses", "daemonsets"):
        watches.relist(resource, "expired")
        watches.undecodable(resource)
        for kind in ("ADDED", "MODIFIED", "DELETED", "ERROR"):
            watches.event(resource, kind)
    for name in ("node", "noderuntime"):
        queues.depth(name, 1)
        queues.added(name)
        queues.waited(name, 1.0)
        queues.worked(name, 1.0)
        queues.retried(name)
        for result in ("success", "requeue_after", "error", "terminal"):
            queues.outcome(name, result)
