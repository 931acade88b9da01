"""A NodeRuntime is deleted on nodes whose pods still use its handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reconciler.kube.resources import PODS
from reconciler.sim.loops import BINARY, HANDLER, manifest, phase, user_pod

Drive = Callable[..., None]
USER = user_pod("web", "node-1")


def in_use(**spec: Any) -> dict[str, Any]:
    body = manifest(install=phase("seconds=1", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))
    body["spec"].update(spec)
    return body


def served(s: Any) -> bool:
    return HANDLER in s.cluster.nodes["node-1"].daemon.loaded.handlers


def test_force_also_helps_one_that_waits_already(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(in_use())
        await s.ready()
        await s.cluster.admin.create(PODS, USER, "default")
        await asyncio.sleep(5)
        await s.delete()
        await s.until(lambda: s.state("node-1").draining)
        await asyncio.sleep(60)
        assert served(s)
        await s.patch({"uninstall": {"whenInUse": "Force"}})
        await s.until(lambda: s.runtime() is None, 60)
        assert not served(s)

    drive(main, nodes=1)


def test_with_force_it_does_not_wait_for_them(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(in_use(uninstall={"whenInUse": "Force"}))
        await s.ready()
        await s.cluster.admin.create(PODS, USER, "default")
        await asyncio.sleep(5)
        await s.delete()
        await s.until(lambda: not served(s), 60)
        await s.until(lambda: s.runtime() is None, 60)

    drive(main, nodes=1)
