"""Scenario 16, its second half: what the simulated kubelet is held to, on the nodes' own kubelets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from reconciler.kube.light import LightTransport
from tests.cluster import controlplane, paths
from tests.cluster.command import CommandFailed
from tests.cluster.lab import Lab, Verdict
from tests.cluster.node import Node
from tests.cluster.observer import processes
from tests.conformance.api import Api
from tests.conformance.kubelet_bench import LOOK, MARKS, WORD, Bench
from tests.conformance.kubelet_ways import WAYS, Seen, wrong

_EVENTS = "/api/v1/namespaces/default/events"
LIMIT = 240.0
"""Seconds for all of it."""


class RealMachine:
    """A node of the cluster as the bench sees it; what blocks is done in threads."""

    def __init__(self, node: Node, api: Api) -> None:
        self.name = node.name
        self._node = node
        self._api = api

    async def stop_containerd(self) -> None:
        await self._run("systemctl", "stop", "containerd")

    async def start_containerd(self) -> None:
        await self._run("systemctl", "start", "containerd")
        while True:
            if await asyncio.to_thread(self._serves):
                return
            await asyncio.sleep(LOOK)

    async def stop_kubelet(self) -> None:
        await self._run("systemctl", "stop", "kubelet")

    async def start_kubelet(self) -> None:
        await self._run("systemctl", "start", "kubelet")

    async def stop_sandbox(self, uid: str) -> None:
        label = f"io.kubernetes.pod.uid={uid}"
        listed = await asyncio.to_thread(self._node.crictl, "pods", "--label", label, "-o", "json")
        for sandbox in json.loads(listed)["items"]:
            await asyncio.to_thread(self._node.crictl, "stopp", sandbox["id"])

    async def runs(self, uid: str) -> bool:
        found = await asyncio.to_thread(processes.of_pod, uid)
        return any(WORD in process.command for process in found)

    async def marks(self, name: str) -> int:
        file = self._node.root / MARKS.lstrip("/") / name
        return len(file.read_text()) if file.exists() else 0

    async def failed_kills(self, uid: str) -> int:
        chosen = f"involvedObject.uid={uid},reason=FailedKillPod"
        listed = await self._api.get(_EVENTS, fieldSelector=chosen)
        return sum(event.get("count") or 1 for event in listed.body["items"])

    async def _run(self, *argv: str) -> None:
        await asyncio.to_thread(self._node.run, *argv)

    def _serves(self) -> bool:
        try:
            return bool(self._node.crictl("version"))
        except CommandFailed:
            return False


def run(lab: Lab, verdict: Verdict) -> None:
    """There must be no agents: they end pods that a kubelet is slow to end."""
    asyncio.run(_all(lab, verdict))


async def _all(lab: Lab, verdict: Verdict) -> None:
    """Ways that disturb nobody go side by side, the others one after the other, on two nodes at once."""
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        calm = [title for title in WAYS if not WAYS[title].disturbs]
        rough = [title for title in WAYS if WAYS[title].disturbs]
        for node, titles in zip(lab.nodes, (rough[0::2], rough[1::2]), strict=True):
            mine = calm[node.index :: len(lab.nodes)]
            tasks.create_task(_on(node, mine, titles, verdict))


async def _on(node: Node, calm: Iterable[str], rough: Iterable[str], verdict: Verdict) -> None:
    async with asyncio.TaskGroup() as tasks:
        for title in calm:
            tasks.create_task(_judge(node, title, verdict))
    for title in rough:
        await _judge(node, title, verdict)


async def _judge(node: Node, title: str, verdict: Verdict) -> None:
    transport = LightTransport(paths.API, ca_file=controlplane.AUTHORITY, token="admin-token")
    api = Api(transport, lambda: asyncio.sleep(0))
    machine = RealMachine(node, api)
    try:
        seen = await _seen(title, api, machine)
    except ExceptionGroup as group:
        verdict.check(False, f"{title}: {[repr(error) for error in group.exceptions]}")
        return
    finally:
        await machine.start_containerd()
        await machine.start_kubelet()
        await transport.close()
    for key, value in seen.items():
        if isinstance(value, float):
            verdict.measured(f"kubelet, {title}: {key}, s", value)
    found = list(wrong(WAYS[title].expected, seen))
    verdict.check(not found, f"{title}: {found}")


async def _seen(title: str, api: Api, machine: RealMachine) -> Seen:
    async with asyncio.TaskGroup() as tasks:
        return await WAYS[title].act(Bench(api, machine, tasks))
