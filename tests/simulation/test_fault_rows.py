"""Fault rows: deletions half-way, payloads that restart things, and configurations that broke nodes elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api import names
from reconciler.sim import judge
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase

Drive = Callable[..., None]
LABEL = names.stage_label(RUNTIME)
PHASES = {
    "preInstall": phase("seconds=1"),
    "install": phase("seconds=1", f"drop={BINARY}"),
    "uninstall": phase("seconds=1", f"take={BINARY}"),
    "postUninstall": phase("seconds=1"),
}
MAIN = "etc/containerd/config.toml"
CRI = 'plugins."io.containerd.grpc.v1.cri"'


def full(**options: Any) -> dict[str, Any]:
    """Every phase has a payload that ends by itself."""
    return manifest(**{"unavailable": "100%", "bake": 3, **PHASES, **options})


async def configured(s: Any, config: str, **files: str) -> None:
    """Every node has this config.toml (and `files` beside it), and containerd runs on it; that is the start."""
    for node in s.cluster.nodes.values():
        (node.root / MAIN).write_text(config)
        for name, text in files.items():
            (node.root / MAIN).with_name(f"{name}.toml").write_text(text)
        await node.daemon.restart("admin")
        await node.daemon.served()
    s.before = judge.look(s.cluster)


# --- a: deletions half-way ---


def test_a2_deleted_when_one_node_is_done_both_are_undone(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full(unavailable=1))
        await s.until(lambda: "ready" in s.stages().values())
        await s.until(lambda: sorted(s.stages().values())[0] not in ("absent", "ready"))
        await s.delete()
        assert await s.gone() < 60

    drive(main)


def test_a3_after_a_deletion_in_pre_install_the_next_install_begins_at_the_beginning(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await s.until(lambda: s.stage_somewhere("pre-install"))
        await s.delete()
        await s.until(lambda: s.runtime() is None)
        made = s.pods_made()
        await s.create(full())
        await s.ready()
        assert s.pods_made() - made == 2 * len(s.cluster.nodes)  # pre-install and install, on every node
        await s.delete()
        await s.gone()

    drive(main)


# --- b: payloads that restart things ---


def test_b2_an_uninstall_payload_that_restarts_containerd_is_fine(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full(uninstall=phase("restart=1", f"take={BINARY}")))
        await s.ready()
        await s.delete()
        assert await s.gone() < 60
        assert s.restarts("payload") == len(s.cluster.nodes)
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)

    drive(main)


def test_b3_a_payload_that_restarts_kubelet_as_well_runs_once(drive: Drive) -> None:
    async def main(s: Any) -> None:
        restarting = {name: {**body, "args": [*body["args"], "restart=1"]} for name, body in PHASES.items()}
        restarting["install"]["args"].append("restart-kubelet")
        await s.create(full(**restarting))
        await s.ready()
        await s.delete()
        await s.gone()
        assert s.restarts("payload") == 4 * len(s.cluster.nodes)
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)
        assert s.pods_made() == 4 * len(s.cluster.nodes)

    drive(main)


def test_e1_a_done_label_that_somebody_removes_is_not_needed_any_more(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest(unavailable="100%"))
        await s.ready()
        for name in s.cluster.nodes:
            await s.mark(name, **{"sim/installed": None})
        await asyncio.sleep(60)
        assert set(s.stages().values()) == {"ready"}
        await s.delete()
        await s.gone()

    drive(main)


# --- k1: what another installer left ---


def test_k1_done_labels_of_an_earlier_installer_are_not_taken_for_ours(drive: Drive) -> None:
    async def main(s: Any) -> None:
        for name in s.cluster.nodes:
            await s.mark(name, **{"sim/installed": "true"})
        await s.create(manifest(unavailable="100%"))
        await s.ready()
        for node in s.cluster.nodes.values():
            assert (node.root / BINARY.lstrip("/")).exists()
        await s.delete()
        await s.until(lambda: s.runtime() is None)
        await s.until(lambda: set(s.left()) <= {f"{n}: label sim/installed is None, it was 'true'" for n in s.stages()})

    drive(main)


def test_k1_a_handler_that_another_installer_configured_is_told_before_the_node_is_touched(drive: Drive) -> None:
    theirs = f'\n[{CRI}.containerd.runtimes.{HANDLER}]\n  runtime_type = "io.containerd.runc.v2"\n'

    async def main(s: Any) -> None:
        node = s.cluster.nodes["node-1"]
        plain = (node.root / MAIN).read_text()
        (node.root / MAIN).write_text(plain + theirs)
        await node.daemon.restart("admin")
        await s.until(lambda: HANDLER in node.daemon.loaded.handlers)
        await asyncio.sleep(2)
        await s.create(full())
        message = await s.says("Degraded", "True", "HandlerConflict")
        assert message == (
            "node-1: CRI serves kata-qemu already; remove it with what installed it, or name another handler "
            "(more: `kubectl reconciler explain node-1`)"
        )
        await s.until(lambda: s.events("HandlerConflict") == [("Warning", message)])
        await s.until(lambda: s.stages() == {"node-1": "absent", "node-2": "ready"})
        assert not [line for line in s.touches() if line == "PATCH nodes node-1"]
        assert (node.root / MAIN).read_text() == plain + theirs
        (node.root / MAIN).write_text(plain)
        await node.daemon.restart("admin")
        await s.ready()
        await s.says("Degraded", "False", "AsExpected")
        await s.delete()
        await s.gone()

    drive(main)


def test_k1_a_handler_that_is_on_disk_but_not_served_is_refused_by_the_agent_and_told(drive: Drive) -> None:
    theirs = f'\n[{CRI}.containerd.runtimes.{HANDLER}]\n  runtime_type = "io.containerd.runc.v2"\n'

    async def main(s: Any) -> None:
        node = s.cluster.nodes["node-1"]
        plain = (node.root / MAIN).read_text()
        (node.root / MAIN).write_text(plain + theirs)
        await s.create(full())
        message = await s.says("Degraded", "True", "HandlerConflict")
        assert message.startswith("node-1: ")
        assert s.stages()["node-1"] == "configure"
        await asyncio.sleep(300)
        assert s.condition("Stuck")["reason"] == "HandlerConflict"
        assert (node.root / MAIN).read_text() == plain + theirs
        assert s.restarts_of("node-1") == 0
        (node.root / MAIN).write_text(plain)
        await s.ready()
        await s.says("Degraded", "False", "AsExpected")
        await s.says("Stuck", "False", "AsExpected")
        await s.delete()
        await s.gone()

    drive(main)


# --- C and D: configurations that others broke ---


def test_d_a_config_without_a_table_of_runtimes_keeps_the_built_in_one(drive: Drive) -> None:
    config = f'version = 2\n[{CRI}]\n  sandbox_image = "registry.k8s.io/pause:3.10"\n'

    async def main(s: Any) -> None:
        await configured(s, config)
        for _ in range(2):
            await s.create(full())
            await s.ready()
            for node in s.cluster.nodes.values():
                assert node.daemon.loaded.handlers == (HANDLER, "runc")
                assert node.daemon.loaded.default_runtime == "runc"
            await s.delete()
            await s.gone()
        assert all((n.root / MAIN).read_text() == config for n in s.cluster.nodes.values())

    drive(main)


@pytest.mark.parametrize("entry", ["/etc/containerd/site.toml", "/etc/containerd/s*.toml", "site.toml"])
def test_c_a_config_with_an_import_of_its_own_survives_loop_after_loop(drive: Drive, entry: str) -> None:
    config = (
        f'version = 2\nimports = ["{entry}"]\n\n[{CRI}.containerd]\n  default_runtime_name = "runc"\n\n'
        f'[{CRI}.containerd.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'
    )
    site = 'version = 2\n\n[debug]\n  level = "info"\n'

    async def main(s: Any) -> None:
        await configured(s, config, site=site)
        for _ in range(3):
            await s.create(full())
            await s.ready()
            assert {n.daemon.loaded.handlers for n in s.cluster.nodes.values()} == {(HANDLER, "runc")}
            await s.delete()
            await s.gone()
            for node in s.cluster.nodes.values():
                assert (node.root / MAIN).read_text() == config
                assert (node.root / MAIN).with_name("site.toml").read_text() == site
                assert not [start for start in node.daemon.starts if start.error]

    drive(main)
