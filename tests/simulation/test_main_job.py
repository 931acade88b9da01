"""Install, use, uninstall, in a loop: clean whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.sim.loops import manifest

Drive = Callable[..., None]


def test_loops_without_faults_are_clean_with_one_restart_per_change_and_node(drive: Drive) -> None:
    async def main(s: Any) -> None:
        summary = await s.loops().run(3)
        assert summary.problems == []
        assert len(summary.uninstalls) == 3
        assert summary.restarts == Counter(agent=12)
        assert summary.longest_outage < 3.0

    drive(main)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fault", ["kill-window", "outage", "crash", "agent", "controller", "api", "watch"])
def test_loops_with_one_kind_of_fault_are_clean(drive: Drive, fault: str, seed: int) -> None:
    async def main(s: Any) -> None:
        injector = s.inject(fault, seed=seed)
        summary = await s.loops().run(2)
        assert summary.problems == []
        assert injector.caused[fault] > 0

    drive(main, seed=seed, controllers=2)


@pytest.mark.parametrize("seed", [1, 2])
def test_loops_with_every_fault_are_clean(drive: Drive, seed: int) -> None:
    async def main(s: Any) -> None:
        s.inject("kill-window", "outage", "crash", "agent", "controller", "api", "watch", seed=seed, pace=15.0)
        summary = await s.loops().run(2)
        assert summary.problems == []

    drive(main, nodes=3, seed=seed, controllers=2)


def test_a_kill_that_hit_an_outage_ends_within_two_seconds_and_its_grace(drive: Drive) -> None:
    async def main(s: Any) -> None:
        s.inject("kill-window", seed=1)
        loops = s.loops()
        s.cluster.spawn(loops.watch_pods())
        summary = await loops.run(2)
        assert summary.problems == []
        assert summary.failed_kills > 0
        assert summary.kill_retries > 0
        assert summary.longest_wait < 2.0 + 1.0 + 2.5 + 1.5  # grace, outage, start of containerd, and 2 s to end

    drive(main)


def test_nodes_go_one_after_the_other_when_one_may_be_unavailable(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest(unavailable=1))
        busy = 0

        def ready() -> bool:
            nonlocal busy
            stages = s.stages().values()
            busy = max(busy, sum(1 for stage in stages if stage not in ("absent", "ready")))
            return set(stages) == {"ready"}

        await s.until(ready)
        assert busy == 1

    drive(main, nodes=3)


def test_writes_stay_within_their_budget_and_stop_when_nothing_changes(drive: Drive) -> None:
    async def main(s: Any) -> None:
        exits = {
            "install": {"image": "sim/payload:1", "args": ["drop=/opt/kata/bin/containerd-shim-kata-v2"]},
            "uninstall": {"image": "sim/payload:1", "args": ["take=/opt/kata/bin/containerd-shim-kata-v2"]},
        }
        await s.until(lambda: all(_reported(s, name) for name in s.cluster.nodes))
        await asyncio.sleep(5)  # virtual seconds: what agents say at their start is no part of a loop
        s.cluster.server.audit.clear()
        await s.create(manifest(unavailable="100%", **exits))
        await s.ready()
        await s.delete()
        await s.gone()
        patches = _writes(s, lambda a: a.method == "PATCH" and a.target.kind.plural == "nodes")
        others = _writes(s, lambda a: a.method not in ("GET", "WATCH") and a.target.kind.plural not in FREE)
        assert patches <= 10 * len(s.cluster.nodes)
        assert others <= 20 * len(s.cluster.nodes)

    drive(main)


def test_nothing_is_written_while_nothing_changes(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create()
        await s.ready()
        await asyncio.sleep(30)
        s.cluster.server.audit.clear()
        await asyncio.sleep(1800)
        assert _writes(s, lambda a: a.method not in ("GET", "WATCH") and a.target.kind.plural != "leases") == 0

    drive(main)


FREE = ("nodes", "events", "leases")
"""Counted elsewhere, or not at all."""


def _writes(s: Any, chosen: Callable[[Any], bool]) -> int:
    """Requests of the product: not those of kubelets and of the person."""
    product = (a for a in s.cluster.server.audit if a.user.startswith(("controller", "agent")))
    return sum(1 for a in product if chosen(a))


def _reported(s: Any, node: str) -> bool:
    return any(c["type"] == "ContainerdServing" for c in s.node(node).get("status", {}).get("conditions", ()))
