"""A revision that failed on a node, a revert, and the same revision once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from reconciler.sim.loops import BINARY, manifest, phase

Drive = Callable[..., None]

GOOD = manifest(install=phase("seconds=1", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))
BAD = manifest(install=phase("needs=/opt/firmware", f"drop={BINARY}"), uninstall=phase("seconds=1", f"take={BINARY}"))


def test_a_reverted_failure_is_forgotten_and_that_revision_is_tried_anew(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(GOOD)
        await s.ready()
        await s.patch(BAD["spec"])
        await s.says("Degraded", "True", "NodesFailed", limit=300)
        await s.until(lambda: s.state("node-1").stage == "ready" and s.state("node-1").failed != "")
        await s.patch({"paused": None, "phases": {"install": {"args": GOOD["spec"]["phases"]["install"]["args"]}}})
        await s.until(lambda: s.state("node-1").failed == "")
        assert s.state("node-1").error is None
        await s.says("Progressing", "False", "Complete")
        for node in s.cluster.nodes.values():
            (node.root / "opt/firmware").write_text("x")
        await s.patch(BAD["spec"])
        await s.says("Progressing", "True", "RollingOut")
        await s.says("Progressing", "False", "Complete")
        assert s.condition("Degraded")["status"] == "False"

    drive(main)


def test_a_failure_is_not_forgotten_while_another_problem_holds(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(GOOD)
        await s.ready()
        await s.patch(BAD["spec"])
        await s.says("Degraded", "True", "NodesFailed", limit=300)
        await s.until(lambda: s.state("node-1").stage == "ready")
        failed, made = s.state("node-1").failed, s.pods_made()
        rights = s.cluster.server.knobs.rights
        rights.take("controller", "watch", "runtimeclasses")
        s.cluster.leader.kill()
        await s.says("Degraded", "True", "Forbidden")
        await asyncio.sleep(60)
        rights.give("controller", "watch", "runtimeclasses")
        await s.says("Degraded", "True", "NodesFailed")
        await asyncio.sleep(60)
        assert (s.state("node-1").failed, s.pods_made()) == (failed, made)

    drive(main)
