"""A ControllerRevision that somebody deletes while nodes still carry what it describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.api import names
from reconciler.api.noderuntime import revision_name
from reconciler.kube.resources import CONTROLLERREVISIONS, NODES
from reconciler.sim import kinds
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase

Drive = Callable[..., None]

OLD = manifest(unavailable="100%")
NEW = manifest(install=phase("seconds=1", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))


def kept(s: Any, revision: str) -> Any:
    key = (names.NAMESPACE, revision_name(RUNTIME, revision))
    return s.cluster.server.store.get(kinds.CONTROLLERREVISIONS, key).object


async def lose(s: Any, revision: str) -> None:
    await s.cluster.admin.delete(CONTROLLERREVISIONS, revision_name(RUNTIME, revision), names.NAMESPACE)


async def stranded(s: Any) -> Any:
    """A deletion waits, because the older revision by which the nodes were installed is lost; gives what it was."""
    await s.create(OLD)
    await s.ready()
    await s.patch({"paused": True, **NEW["spec"]})
    revision = s.state("node-1").installed
    backup = kept(s, revision)
    await lose(s, revision)
    await s.delete()
    await s.patch({"paused": False})
    await s.says("Degraded", "True", "RevisionMissing")
    return backup


def test_a_deletion_needs_no_more_than_the_spec_where_that_is_what_is_installed(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(OLD)
        await s.ready()
        await s.delete()
        await s.until(lambda: s.stage_somewhere("unconfigure"))
        await lose(s, s.state("node-1").target)
        await s.gone()

    drive(main)


def test_nothing_is_taken_half_out_of_a_node_whose_revision_is_missing(drive: Drive) -> None:
    async def main(s: Any) -> None:
        backup = await stranded(s)
        meta = {key: backup["metadata"][key] for key in ("name", "labels", "annotations")}
        assert set(s.stages().values()) == {"ready"}
        assert all(HANDLER in node.daemon.loaded.handlers for node in s.cluster.nodes.values())
        await s.cluster.admin.create(CONTROLLERREVISIONS, {**backup, "metadata": meta}, names.NAMESPACE)
        assert await s.gone() < 30

    drive(main)


def test_a_node_that_a_person_skips_is_rid_of_what_needs_no_revision(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await stranded(s)
        for node in s.cluster.nodes:
            mark = {"metadata": {"annotations": {names.skip_annotation(RUNTIME): "true"}}}
            await s.cluster.admin.patch(NODES, node, mark)
        await s.until(lambda: s.runtime() is None)
        await s.until(lambda: set(s.stages().values()) == {"absent"})
        assert set(s.left()) == {f"{node}: {BINARY} is left" for node in s.cluster.nodes}

    drive(main)
