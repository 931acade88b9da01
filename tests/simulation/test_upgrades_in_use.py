"""An upgrade that takes a handler away, on nodes whose pods still use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reconciler.kube.resources import PODS
from reconciler.sim.loops import BINARY, HANDLER, manifest, phase, user_pod

Drive = Callable[..., None]
USER = user_pod("web", "node-1")


def served(s: Any) -> set[str]:
    return {h for h in s.cluster.nodes["node-1"].daemon.loaded.handlers if h.startswith("kata")}


def renamed(body: dict[str, Any]) -> dict[str, Any]:
    return {"handlers": [{**body["spec"]["handlers"][0], "name": "kata-new", "runtimeClass": {"name": "kata-new"}}]}


def test_an_upgrade_in_place_waits_for_them_and_lets_others_go_on(drive: Drive) -> None:
    async def main(s: Any) -> None:
        body = manifest(install=phase("seconds=1", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))
        await s.create(body)
        await s.ready()
        await s.cluster.admin.create(PODS, USER, "default")
        await asyncio.sleep(5)
        await s.patch(renamed(body))
        await asyncio.sleep(300)
        assert served(s) == {HANDLER}
        assert {n: s.state(n).installed == s.state(n).target for n in s.cluster.nodes} == {
            "node-1": True,
            "node-2": True,
        }
        assert s.state("node-1").installed != s.state("node-2").installed
        before = s.touches()
        await asyncio.sleep(60)
        assert s.touches() == before
        await s.cluster.admin.delete(PODS, "web", "default")
        await s.says("Progressing", "False", "Complete")
        assert served(s) == {"kata-new"}

    drive(main, nodes=2)


def test_a_pod_that_comes_late_is_seen_by_the_agent(drive: Drive) -> None:
    async def main(s: Any) -> None:
        body = manifest(install=phase("seconds=20", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))
        await s.create(body)
        await s.ready()
        await s.patch(renamed(body))
        await s.until(lambda: s.stage_somewhere("install"))
        await s.cluster.admin.create(PODS, USER, "default")
        await s.says("Stuck", "True", "HandlerInUse", limit=400)
        assert served(s) == {HANDLER}
        await s.patch({"uninstall": {"whenInUse": "Force"}})
        await s.says("Progressing", "False", "Complete")
        assert served(s) == {"kata-new"}

    drive(main, nodes=1)


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
