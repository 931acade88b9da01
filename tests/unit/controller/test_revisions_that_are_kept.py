"""A revision is kept as long as somebody needs it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from reconciler.api import names
from reconciler.api.node import NodeState, Stage, encode
from reconciler.api.noderuntime import NodeRuntime, revision_data, revision_hash, revision_name
from reconciler.kube.resources import CONTROLLERREVISIONS, NODERUNTIMES, NODES, PODS
from tests.unit.controller.bench import controller_client, empty_world, runtime_reconciler

SPEC = {"phases": {"uninstall": {"image": "vendor/payload:1"}}}


class Bench:
    """One NodeRuntime and one Node before an embedded API server."""

    def __init__(self) -> None:
        self.client = controller_client()
        self.world = empty_world()

    async def runtime(self) -> NodeRuntime:
        body = {"metadata": {"name": "kata", "finalizers": [names.FINALIZER]}, "spec": SPEC}
        made: NodeRuntime = await self.client.create(NODERUNTIMES, body)
        self.world.runtimes.put(made)
        return made

    async def node(self, text: str) -> None:
        """With that state, readable or not."""
        marks = {names.state_annotation("kata"): text}
        labels = {names.stage_label("kata"): "ready"}
        body = {"metadata": {"name": "n1", "annotations": marks, "labels": labels}}
        self.world.nodes.put(await self.client.create(NODES, body))

    async def revision(self, revision: str) -> None:
        meta = {
            "name": revision_name("kata", revision),
            "labels": {names.RUNTIME_LABEL: "kata"},
            "annotations": {names.REVISION_ANNOTATION: revision},
        }
        body = {"metadata": meta, "revision": 1, "data": {}}
        self.world.revisions.put(await self.client.create(CONTROLLERREVISIONS, body, names.NAMESPACE))

    async def pod(self, revision: str) -> None:
        meta = {
            "name": "rr-kata-install-1",
            "labels": {names.COMPONENT_LABEL: names.COMPONENT_PHASE, names.RUNTIME_LABEL: "kata"},
            "annotations": {names.REVISION_ANNOTATION: revision},
        }
        spec = {"nodeName": "n1", "containers": [{"name": "payload", "image": "vendor/payload:1"}]}
        self.world.pods.put(await self.client.create(PODS, {"metadata": meta, "spec": spec}, names.NAMESPACE))

    async def reconcile(self) -> None:
        await runtime_reconciler(self.world, self.client).reconcile("kata")

    async def kept(self) -> set[str]:
        found, _ = await self.client.list(CONTROLLERREVISIONS, names.NAMESPACE)
        return {one.metadata.annotations[names.REVISION_ANNOTATION] for one in found}


def state(stage: Stage, uid: str, target: str, **fields: Any) -> NodeState:
    return NodeState(uid=uid, stage=stage, target=target, since=datetime(2026, 1, 2, tzinfo=UTC), **fields)


async def test_a_revision_is_kept_while_a_pod_of_it_is_there() -> None:
    """How long its payload may take to end is written there, also when the node has another goal by now."""
    bench = Bench()
    owner = await bench.runtime()
    wanted = revision_hash(revision_data(owner.spec))
    await bench.node(encode(state(Stage.INSTALL, owner.metadata.uid, wanted)))
    for revision in ("before", "unused"):
        await bench.revision(revision)
    await bench.pod("before")
    await bench.reconcile()
    assert await bench.kept() == {wanted, "before"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [("{", {"before", "unused"}), (encode(state(Stage.READY, "u", "before", installed="before")), {"before"})],
    ids=["unreadable", "readable"],
)
async def test_every_revision_is_kept_while_a_state_cannot_be_read(text: str, kept: set[str]) -> None:
    """A person may put it right, and it names any of them."""
    bench = Bench()
    owner = await bench.runtime()
    await bench.node(text)
    for revision in ("before", "unused"):
        await bench.revision(revision)
    await bench.reconcile()
    assert await bench.kept() == {revision_hash(revision_data(owner.spec)), *kept}
