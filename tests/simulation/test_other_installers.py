"""A DaemonSet that edits containerd's configuration on our nodes is told of, and forgotten when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reconciler.kube.resources import DAEMONSETS
from reconciler.sim.loops import BINARY, manifest, phase

Drive = Callable[..., None]
MESSAGE = (
    "DaemonSet kube-system/gpu-toolkit is privileged and mounts /etc/containerd of these nodes: two installers edit "
    "one configuration; remove it, or leave its nodes out of spec.nodeSelector"
)


def installer(**selector: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "sim/payload:1",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/containerd"}],
    }
    spec = {
        "nodeSelector": selector,
        "containers": [container],
        "volumes": [{"name": "config", "hostPath": {"path": "/etc/containerd"}}],
    }
    return {"metadata": {"name": "gpu-toolkit"}, "spec": {"template": {"spec": spec}}}


def simple() -> dict[str, Any]:
    exits = {"install": phase(f"drop={BINARY}"), "uninstall": phase(f"take={BINARY}")}
    return manifest(unavailable="100%", **exits)


def test_another_installer_is_told_of_and_holds_nothing_up(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(simple())
        await s.ready()
        assert await s.says("ForeignInstaller", "False", "NoneFound") == ""
        await s.cluster.admin.create(DAEMONSETS, installer(), "kube-system")
        assert await s.says("ForeignInstaller", "True", "ForeignInstaller") == MESSAGE
        await s.until(lambda: s.events("ForeignInstaller") == [("Warning", MESSAGE)])
        assert s.condition("Available")["status"] == "True"
        s.cluster.leader.kill()
        await asyncio.sleep(60)
        assert len(s.events("ForeignInstaller")) == 1  # a new leader says nothing that was said
        await s.cluster.admin.delete(DAEMONSETS, "gpu-toolkit", "kube-system")
        await s.says("ForeignInstaller", "False", "NoneFound")
        await s.until(lambda: s.events("Recovered") == [("Normal", "ForeignInstaller is over")])
        await s.delete()
        await s.gone()

    drive(main)


def test_one_that_runs_on_other_nodes_is_not_told_of(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.cluster.admin.create(DAEMONSETS, installer(gpu="yes"), "kube-system")
        await s.create(simple())
        await s.ready()
        await s.says("ForeignInstaller", "False", "NoneFound")
        await s.delete()
        await s.gone()

    drive(main)


def test_without_the_right_to_see_daemonsets_all_else_goes_on(drive: Drive) -> None:
    async def main(s: Any) -> None:
        s.cluster.server.knobs.rights.take("controller", "list", "daemonsets")
        s.cluster.leader.kill()
        await s.create(simple())
        await s.ready()
        message = await s.says("ForeignInstaller", "Unknown", "Forbidden")
        assert 'cannot list resource "daemonsets" in API group "apps"' in message
        assert s.condition("Degraded")["status"] == "False"
        s.cluster.server.knobs.rights.give("controller", "list", "daemonsets")
        await s.says("ForeignInstaller", "False", "NoneFound")
        await s.delete()
        await s.gone()

    drive(main)
