"""A slot that is left of work that has ended lets nothing begin: it is about to be given back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.api.node import REST
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim import kinds
from reconciler.sim.kinds import Kind
from reconciler.sim.loops import BINARY, RUNTIME, manifest, phase
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble
from reconciler.sim.store import Event

Drive = Callable[..., None]
PHASES = {"install": phase(f"drop={BINARY}"), "uninstall": phase(f"take={BINARY}")}
UPGRADE = {"phases": {"install": {"args": ["seconds=0.5", f"drop={BINARY}"]}}}


class Busy:
    """How many nodes were at work at once, at most; and `upgrade()` once, at the release of the last slot."""

    def __init__(self, s: Any, upgrade: Callable[[], Trouble | None]) -> None:
        self.most = 0
        self.releases = 0
        self._s = s
        self._upgrade = upgrade
        s.cluster.server.store.written.append(self._look)
        s.cluster.server.knobs.trouble = self._trouble

    def _look(self, kind: Kind, event: Event) -> None:
        if kind == kinds.NODES:
            states = [self._s.state(name) for name in self._s.cluster.nodes]
            self.most = max(self.most, sum(1 for state in states if state is not None and state.stage not in REST))

    def _trouble(self, request: Request) -> Trouble | None:
        if self.releases or request.method != "PATCH" or not request.path.endswith(f"/{RUNTIME}/status"):
            return None
        if set(self._s.stages().values()) != {"ready"} or json.loads(request.body or b"")["status"].get("inWork"):
            return None
        self.releases += 1
        return self._upgrade()


@pytest.mark.parametrize("killed", [True, False], ids=["by-the-next-leader", "by-the-same-one"])
def test_an_upgrade_that_comes_as_the_last_slot_is_given_back_keeps_to_the_limit(drive: Drive, killed: bool) -> None:
    async def main(s: Any) -> None:
        def upgrade() -> Trouble:
            s.cluster.spawn(s.cluster.admin.patch(NODERUNTIMES, RUNTIME, {"spec": UPGRADE}))
            if killed:
                s.cluster.leader.kill()
                return Trouble(drop_before=True)
            return Trouble(delay=0.2)

        busy = Busy(s, upgrade)
        await s.create(manifest(unavailable=1, **PHASES))
        await s.until(lambda: busy.releases == 1)
        old = s.state("node-1").installed
        await s.until(
            lambda: all(s.state(n).installed != old for n in s.cluster.nodes) and set(s.stages().values()) == {"ready"}
        )
        assert busy.most == 1
        await s.delete()
        await s.gone()
        assert busy.most == 1

    drive(main)


@pytest.mark.parametrize("done", [True, False], ids=["done-unanswered", "lost"])
def test_a_release_without_an_answer_holds_nothing_up(drive: Drive, done: bool) -> None:
    async def main(s: Any) -> None:
        def upgrade() -> Trouble:
            s.cluster.spawn(s.cluster.admin.patch(NODERUNTIMES, RUNTIME, {"spec": UPGRADE}))
            return Trouble(drop_after=True) if done else Trouble(drop_before=True)

        busy = Busy(s, upgrade)
        await s.create(manifest(unavailable=1, **PHASES))
        await s.until(lambda: busy.releases == 1)
        old = s.state("node-1").installed
        took = await s.until(lambda: all(s.state(n).installed != old for n in s.cluster.nodes))
        assert took < 15
        assert busy.most == 1
        await s.delete()
        await s.gone()

    drive(main)
