"""What an API server holds in the tests of commands that look: nodes that are ready, at work, stuck, and set aside."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from reconciler.api import names
from reconciler.api.clock import rfc3339
from reconciler.api.node import NodeState, Report, Stage, encode
from reconciler.api.noderuntime import NodeRuntime, revision_data, revision_hash, revision_name
from reconciler.controller.pods import build
from reconciler.kube.client import Client
from reconciler.kube.resources import CONTROLLERREVISIONS, LEASES, NODERUNTIMES, NODES, PODS

NS = names.NAMESPACE
T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW = T0 + timedelta(minutes=12)
CLUSTER = ("--namespace", NS)


class Cluster:
    """What the API server holds, made by one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.uid = ""
        self.revision = ""

    async def runtime(self, name: str = "kata", **spec: Any) -> NodeRuntime:
        """With a kept revision, as the controller keeps it."""
        body = {
            "metadata": {"name": name},
            "spec": {
                "handlers": [{"name": name}],
                "phases": {"install": {"image": "vendor/kata:1", "timeoutSeconds": 60}},
                **spec,
            },
        }
        made = await self._client.create(NODERUNTIMES, body)
        data = revision_data(made.spec)
        self.uid, self.revision = made.metadata.uid, revision_hash(data)
        kept = {
            "metadata": {"name": revision_name(name, self.revision), "labels": {names.RUNTIME_LABEL: name}},
            "revision": 1,
            "data": json.loads(json.dumps({"handlers": body["spec"]["handlers"], "phases": body["spec"]["phases"]})),
        }
        await self._client.create(CONTROLLERREVISIONS, kept, NS)
        return made

    async def node(
        self, name: str, stage: Stage | None = None, *, cri: str = "containerd://1.7.3", **fields: Any
    ) -> None:
        """A Ready node with a ready agent, in `stage` of kata since T0."""
        labels, annotations = {"pool": fields.pop("pool", "a")}, {}
        served = ["runc"]
        if stage is not None:
            state = NodeState(**{"uid": self.uid, "stage": stage, "target": self.revision, "since": T0, **fields})
            annotations[names.state_annotation("kata")] = encode(state)
            labels[names.stage_label("kata")] = str(stage)
            if state.installed and not state.draining:
                labels[names.present_label("kata")] = names.PRESENT_LABEL_VALUE
                served = ["kata", "runc"]
        annotations[names.REPORT_ANNOTATION] = encode(Report(containerd="1.7.3", handlers=tuple(served)))
        moment = rfc3339(T0 - timedelta(hours=1))
        conditions = [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": moment},
            {
                "type": names.SERVING_CONDITION,
                "status": "True",
                "reason": "Serving",
                "message": "CRI answers Version and Status",
                "lastTransitionTime": moment,
            },
        ]
        told = {"conditions": conditions, "nodeInfo": {"containerRuntimeVersion": cri}}
        await self._client.create(NODES, {"metadata": {"name": name, "labels": labels, "annotations": annotations}})
        await self._client.patch(NODES, name, {"status": told}, subresource="status")
        pod = {
            "metadata": {"name": f"agent-{name}", "labels": {names.COMPONENT_LABEL: names.COMPONENT_AGENT}},
            "spec": {"nodeName": name, "containers": [{"name": "agent", "image": "x"}]},
        }
        await self._client.create(PODS, pod, NS)
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await self._client.patch(PODS, f"agent-{name}", ready, NS, subresource="status")

    async def phase_pod(self, node: str, made: NodeRuntime, **state: Any) -> None:
        """The install pod of `node`, whose image cannot be pulled."""
        wanted = NodeState(uid=self.uid, stage=Stage.INSTALL, target=self.revision, since=T0, **state)
        body = build("kata", node, NS, wanted, revision_data(made.spec))
        pod = await self._client.create(PODS, body, NS)
        waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: ErrImagePull: not found"}
        told = {"phase": "Pending", "containerStatuses": [{"name": "payload", "state": {"waiting": waiting}}]}
        await self._client.patch(PODS, pod.metadata.name, {"status": told}, NS, subresource="status")

    async def leader(self, renewed: datetime) -> None:
        spec = {
            "holderIdentity": "controller-1",
            "leaseDurationSeconds": 10,
            "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}",
        }
        await self._client.create(LEASES, {"metadata": {"name": names.LEASE_NAME}, "spec": spec}, NS)


async def stuck(client: Client) -> None:
    """Five nodes: one ready, one stuck, one that waits, one that no NodeRuntime selects, one that cannot take part."""
    it = Cluster(client)
    made = await it.runtime(nodeSelector={"matchLabels": {"pool": "a"}})
    await it.node("node-1", Stage.READY, installed=it.revision)
    await it.node("node-2", Stage.INSTALL)
    await it.phase_pod("node-2", made)
    await it.node("node-3")
    await it.node("node-4", pool="b")
    await it.node("node-5", cri="cri-o://1.30")
    await it.leader(datetime.now(UTC))


async def well(client: Client) -> None:
    it = Cluster(client)
    await it.runtime()
    await it.node("node-1", Stage.READY, installed=it.revision)
    await it.leader(datetime.now(UTC))


async def working(client: Client) -> None:
    it = Cluster(client)
    await it.runtime()
    await it.node("node-1")
    await it.leader(datetime.now(UTC))
