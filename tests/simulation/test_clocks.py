"""The wall clock jumps by an hour, to either side, in any stage: nothing waits longer, and no try is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from reconciler.sim.loops import BINARY, manifest, phase

Drive = Callable[..., None]
HOUR = timedelta(hours=1)


def full() -> dict[str, Any]:
    """Every phase has a payload that ends by itself."""
    return manifest(
        unavailable="100%",
        bake=3,
        preInstall=phase("seconds=1"),
        install=phase("seconds=1", f"drop={BINARY}"),
        uninstall=phase("seconds=1", f"take={BINARY}"),
        postUninstall=phase("seconds=1"),
    )


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])
@pytest.mark.parametrize(
    "stage", ["pre-install", "install", "configure", "verify", "unconfigure", "uninstall", "post-uninstall"]
)
@pytest.mark.parametrize("killed", [False, True], ids=["", "with-a-new-leader"])
def test_a_jump_of_the_wall_clock_costs_no_time_and_no_try(
    drive: Drive, stage: str, jump: timedelta, killed: bool
) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        if stage in ("unconfigure", "uninstall", "post-uninstall"):
            await s.ready()
            await s.delete()
        await s.until(lambda: s.stage_somewhere(stage))
        s.cluster.options.clock.jump = jump
        if killed:
            s.cluster.leader.kill()
        if s.runtime() is not None and "deletionTimestamp" not in s.runtime()["metadata"]:
            assert await s.ready() < 45
            await s.delete()
        assert await s.gone() < 45
        assert s.pods_made() == 4 * len(s.cluster.nodes)
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)
        assert s.events("Stuck") == []

    drive(main, controllers=2)


def test_a_bake_is_as_long_as_it_should_be_when_the_clock_jumps_in_it(drive: Drive) -> None:
    async def main(s: Any) -> None:
        body = full()
        body["spec"]["rollout"]["bakeSeconds"] = 100
        await s.create(body)
        await s.until(lambda: s.stages()["node-1"] == "verify")
        s.cluster.options.clock.jump = HOUR
        assert 95 < await s.until(lambda: s.stages()["node-1"] == "ready") < 105
        await s.until(lambda: s.stages()["node-2"] == "verify")
        s.cluster.options.clock.jump = -HOUR
        assert 95 < await s.until(lambda: s.stages()["node-2"] == "ready") < 105

    drive(main)
