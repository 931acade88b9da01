"""A run in virtual time is a function of its seed: whatever is found in one can be looked at again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.sim.loops import BINARY, manifest, phase

Drive = Callable[..., None]


def test_two_runs_with_one_seed_ask_the_same_in_the_same_order(drive: Drive) -> None:
    runs = []

    async def main(s: Any) -> None:
        await s.create(manifest(unavailable="100%", install=phase(f"drop={BINARY}"), uninstall=phase(f"take={BINARY}")))
        await s.ready()
        await s.patch({"phases": {"install": phase(f"drop={BINARY}", "seconds=1")}})
        await s.until(lambda: set(s.stages().values()) != {"ready"})
        await s.ready()
        await s.delete()
        await s.gone()
        runs.append([(a.time, a.user, a.method, a.target, a.status) for a in s.cluster.server.audit])

    for _ in range(2):
        drive(main, nodes=3)
    assert len(runs[0]) > 200
    assert runs[0] == runs[1]
