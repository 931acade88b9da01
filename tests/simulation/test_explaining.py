"""What is said of a node that does not go on: the signal, what was seen of it, what to do; by every reader alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.api import names
from reconciler.api.overview import NodeRow, Overview
from reconciler.cli.snapshot import listed, read
from reconciler.sim.loops import RUNTIME, manifest, phase

Drive = Callable[..., None]
Scenario = Any
IMAGE = "vendor/kata:1"


async def overview(scenario: Scenario) -> Overview:
    """As the leader has noted it."""
    leader = scenario.cluster.leader
    assert leader is not None
    assert leader.controller is not None
    return await leader.controller.overview()


async def row(scenario: Scenario, node: str) -> NodeRow:
    return next(row for row in (await overview(scenario)).nodes if row.node == node)


async def row_of_lists(scenario: Scenario, node: str) -> NodeRow:
    """As the command line sees it."""
    cluster = scenario.cluster
    whole = read(await listed(cluster.admin, cluster.options.namespace), cluster.options.clock.now())
    return next(row for row in whole.nodes if row.node == node)


def serving(scenario: Scenario, node: str) -> str:
    conditions = scenario.node(node).get("status", {}).get("conditions", ())
    return next((str(c["status"]) for c in conditions if c["type"] == names.SERVING_CONDITION), "")


def test_an_image_that_cannot_be_pulled_is_explained_from_the_first_minute_until_it_is_there(drive: Drive) -> None:
    async def main(scenario: Scenario) -> None:
        body = manifest(unavailable=2)
        install = {**body["spec"]["phases"]["install"], "image": IMAGE, "timeoutSeconds": 60}
        body["spec"]["phases"]["install"] = install
        await scenario.create(body)
        await scenario.says("Degraded", "True", "ImagePullFailed")
        early = await row(scenario, "node-1")
        assert (early.stage, early.verdict, early.awaits) == ("install", "waiting", "pod-started")
        assert early.error is not None
        assert early.error.message == f'failed to pull and unpack image "{IMAGE}": not found'

        await scenario.says("Stuck", "True", "ImagePullFailed")
        late = await row(scenario, "node-1")
        assert late.verdict == "stuck"
        assert late.waits_for.startswith("that pod rr-kata-install-")
        assert (
            f'has not started: ImagePullFailed: failed to pull and unpack image "{IMAGE}": not found' in late.last_seen
        )
        assert "the time for it was over at" in late.next
        assert late.advice.startswith("correct the image or its tag, spec.imagePullSecrets or the registry; `kubectl")
        way = "(more: `kubectl reconciler explain node-1`)"
        what = f'ImagePullFailed: failed to pull and unpack image "{IMAGE}": not found {way}'
        await scenario.until(lambda: scenario.events("Stuck") == [("Warning", f"node node-1 in install: {what}")])
        of_node = [("Warning", f"NodeRuntime {RUNTIME}: node node-1 in install: {what}")]
        assert scenario.events("Stuck", "node-1") == of_node  # and so `kubectl describe node` tells of it
        (kata,) = (await overview(scenario)).runtimes
        assert (kata.name, kata.stuck) == (RUNTIME, 1)
        assert kata.halted.startswith("more nodes are failed or stuck than rollout.errorBudget allows")
        waiting = await row(scenario, "node-2")
        assert (waiting.verdict, waiting.awaits, waiting.next) == ("waiting", "slot", f"nothing yet: {kata.halted}")

        seen = await row_of_lists(scenario, "node-1")
        told = (seen.verdict, seen.reason, seen.waits_for, seen.last_seen, seen.advice, seen.error)
        assert told == (late.verdict, late.reason, late.waits_for, late.last_seen, late.advice, late.error)

        scenario.cluster.images.add(IMAGE)
        await scenario.ready(limit=900.0)
        assert {r.verdict for r in (await overview(scenario)).nodes} == {"ok"}

    drive(main)


def test_a_containerd_that_hangs_is_what_an_install_waits_for(drive: Drive) -> None:
    async def main(scenario: Scenario) -> None:
        await scenario.create(manifest(install=phase("seconds=120")))
        await scenario.until(lambda: scenario.stage_somewhere("install"))
        node = next(name for name, stage in scenario.stages().items() if stage == "install")
        assert (await row(scenario, node)).barrier == "open"
        scenario.cluster.nodes[node].daemon.hang = True
        await scenario.until(lambda: serving(scenario, node) == "False")
        closed = await row(scenario, node)
        assert closed.barrier == "closed"
        scenario.cluster.nodes[node].daemon.hang = False
        await scenario.ready(limit=900.0)

    drive(main)


def test_a_node_without_its_agent_waits_for_it_and_every_reader_says_so(drive: Drive) -> None:
    async def main(scenario: Scenario) -> None:
        await scenario.cluster.nodes["node-1"].withdraw_agent()
        await scenario.create()
        await scenario.says("Degraded", "True", "AgentMissing")
        for told in (await row(scenario, "node-1"), await row_of_lists(scenario, "node-1")):
            assert (told.verdict, told.awaits, told.barrier) == ("waiting", "agent", "unknown")
            assert told.last_seen.startswith("no agent pod on this node; see the agent DaemonSet")
            assert f"kubectl -n {names.NAMESPACE} get pods" in told.advice
        scenario.cluster.nodes["node-1"].release_agent()
        await scenario.ready()

    drive(main)


def test_a_standby_says_the_same_as_the_leader(drive: Drive) -> None:
    async def main(scenario: Scenario) -> None:
        body = manifest(unavailable=2)
        body["spec"]["phases"]["install"]["image"] = IMAGE
        await scenario.create(body)
        await scenario.says("Degraded", "True", "ImagePullFailed")
        said = {}
        for replica in scenario.cluster.replicas:
            assert replica.controller is not None
            whole = await replica.controller.overview()
            rows = [(r.node, r.stage, r.verdict, r.awaits, r.waits_for, r.last_seen, r.advice) for r in whole.nodes]
            said[replica.leads] = (rows, [(r.name, r.ready, r.updating, r.halted) for r in whole.runtimes])
        assert said[False] == said[True]
        assert [row[2:4] for row in said[True][0]] == [("waiting", "pod-started"), ("waiting", "slot")]
        scenario.cluster.images.add(IMAGE)
        await scenario.ready(limit=900.0)

    drive(main, controllers=2)
