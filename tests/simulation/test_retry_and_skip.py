"""What a person asks for on a node: another try, and not to wait for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reconciler.api import names
from reconciler.kube.resources import NODES
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase

Drive = Callable[..., None]
RETRY = names.retry_annotation(RUNTIME)
SKIP = names.skip_annotation(RUNTIME)


async def ask(s: Any, node: str, annotation: str) -> None:
    await s.cluster.admin.patch(NODES, node, {"metadata": {"annotations": {annotation: "true"}}})


def asked(s: Any, node: str, annotation: str) -> bool:
    return annotation in (s.node(node)["metadata"].get("annotations") or {})


def test_a_retry_replaces_a_pod_that_is_stuck_and_is_heeded_once(drive: Drive) -> None:
    async def main(s: Any) -> None:
        image = "vendor/later:1"
        install = {**phase(f"drop={BINARY}"), "image": image, "timeoutSeconds": 20}
        await s.create(manifest(install=install))
        await s.says("Stuck", "True", "ImagePullFailed")
        made = s.pods_made()
        await asyncio.sleep(60)
        assert s.pods_made() == made
        s.cluster.images.add(image)
        await ask(s, "node-1", RETRY)
        await s.until(lambda: s.pods_made() > made, 15)
        assert (s.state("node-1").attempt, asked(s, "node-1", RETRY)) == (2, False)
        await s.ready()
        await s.says("Stuck", "False", "AsExpected")
        await s.delete()
        await s.gone()

    drive(main, nodes=1)


def test_a_retry_of_what_goes_its_way_changes_nothing(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest(install=phase("seconds=10", f"drop={BINARY}")))
        await s.until(lambda: s.stage_somewhere("install"))
        await ask(s, "node-1", RETRY)
        await s.ready()
        await s.until(lambda: not asked(s, "node-1", RETRY))
        assert s.pods_made() == 1
        await s.delete()
        await s.gone()

    drive(main, nodes=1)


def test_a_node_that_died_under_a_payload_can_be_skipped_too(drive: Drive) -> None:
    """Its phase pod stays Terminating for as long as no kubelet ends it."""

    async def main(s: Any) -> None:
        await s.create(manifest(unavailable="100%", install=phase("seconds=5", f"drop={BINARY}")))
        await s.until(lambda: s.stage_somewhere("install"))
        (node,) = [name for name, stage in s.stages().items() if stage == "install"]
        await asyncio.sleep(2)
        await s.cluster.power_off(node)
        await s.not_ready(node)
        await s.delete()
        await asyncio.sleep(60)
        assert s.runtime() is not None
        await ask(s, node, SKIP)
        await s.until(lambda: s.runtime() is None)
        s.cluster.power_on(node)
        await s.gone()
        assert not asked(s, node, SKIP)

    drive(main)


def test_a_node_that_is_skipped_is_undone_when_it_comes_back_and_serves_the_next_runtime_of_that_name(
    drive: Drive,
) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest(unavailable="100%"))
        await s.ready()
        await s.cluster.power_off("node-2")
        await s.not_ready("node-2")
        await s.delete()
        await s.until(lambda: s.stages() == {"node-1": "absent", "node-2": "ready"})
        await asyncio.sleep(60)
        assert s.runtime() is not None
        await ask(s, "node-2", SKIP)
        await s.until(lambda: s.runtime() is None)

        s.cluster.power_on("node-2")
        await s.until(lambda: s.stages()["node-2"] == "absent")
        assert HANDLER not in s.cluster.nodes["node-2"].daemon.loaded.handlers
        assert not asked(s, "node-2", SKIP)
        await s.create(manifest(unavailable="100%"))
        await s.ready()
        await s.delete()
        await s.gone()

    drive(main)
