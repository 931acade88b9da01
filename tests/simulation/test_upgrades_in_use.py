"""An upgrade by way of an uninstall, on nodes whose pods still use a handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reconciler.kube.resources import PODS
from reconciler.sim.loops import BINARY, HANDLER, manifest, phase

Drive = Callable[..., None]
USER = {
    "metadata": {"name": "web"},
    "spec": {
        "nodeName": "node-1",
        "runtimeClassName": HANDLER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "sim/payload:1", "args": ["hang"]}],
    },
}


def test_a_reinstall_waits_for_them_without_a_write(drive: Drive) -> None:
    async def main(s: Any) -> None:
        body = manifest(install=phase("seconds=1", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))
        body["spec"]["upgrade"] = {"strategy": "Reinstall"}
        await s.create(body)
        await s.ready()
        await s.cluster.admin.create(PODS, USER, "default")
        await asyncio.sleep(5)
        await s.patch({"phases": {"install": {"image": "sim/payload:2"}}})
        await s.until(lambda: s.state("node-1").draining)
        await asyncio.sleep(60)
        before = s.touches()
        await asyncio.sleep(60)
        assert s.touches() == before
        assert (s.stages()["node-1"], HANDLER in s.cluster.nodes["node-1"].daemon.loaded.handlers) == ("ready", True)
        await s.cluster.admin.delete(PODS, "web", "default")
        await s.says("Progressing", "False", "Complete")
        assert s.state("node-1").draining is False

    drive(main, nodes=1)
