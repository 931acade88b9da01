"""A new revision begins from nothing: what nodes had of the one before is neither its progress nor its canary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reconciler.api.node import REST
from reconciler.sim import kinds
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.loops import BINARY, manifest, phase
from reconciler.sim.store import Event

Drive = Callable[..., None]

INSTALL = phase("seconds=1", f"drop={BINARY}")
OLD = manifest(unavailable="100%", install=phase(f"drop={BINARY}"), uninstall=phase(f"take={BINARY}"))
NEW = manifest(unavailable="100%", install=INSTALL, uninstall=phase(f"take={BINARY}"))
FLEET = 24
"""More nodes than the controller looks at at once."""


class Told:
    """Every status that is written from now on, and how many nodes are at work while all have what they have now."""

    def __init__(self, s: Any) -> None:
        self._before = s.state("node-1").installed
        self.statuses: list[Object] = []
        self.most = 0
        self._s = s
        s.cluster.server.store.written.append(self._look)

    def _look(self, kind: Kind, event: Event) -> None:
        if kind is kinds.NODERUNTIMES:
            self.statuses.append(event.last.object.get("status") or {})
        states = [self._s.state(name) for name in self._s.cluster.nodes]
        if all(state.installed == self._before for state in states):
            self.most = max(self.most, sum(1 for state in states if state.stage not in REST))


def upgraded(told: Told) -> list[tuple[int, str, str]]:
    """Of the statuses that name another revision than the first one: nodes ready, and two conditions."""
    first = told.statuses[0]["revision"]
    found = []
    for status in told.statuses:
        by_type = {each["type"]: each["status"] for each in status["conditions"]}
        if status["revision"] != first:
            found.append((status["nodes"]["ready"], by_type["Available"], by_type["Progressing"]))
    return found


def test_the_status_of_a_new_revision_does_not_begin_as_complete(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(OLD)
        await s.ready()
        await s.says("Progressing", "False", "Complete")
        told = Told(s)
        await s.patch(NEW["spec"])
        await s.until(lambda: len(upgraded(told)) > 0)
        assert upgraded(told)[0] == (0, "False", "True")
        await s.until(lambda: s.stages() != {"node-1": "ready", "node-2": "ready"})
        await s.ready()
        await s.says("Progressing", "False", "Complete")
        assert upgraded(told)[-1] == (2, "True", "False")

    drive(main)


def test_no_more_nodes_than_the_canary_begin_a_new_revision(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(OLD)
        await s.ready()
        old, told = s.state("node-1").installed, Told(s)
        await s.patch(NEW["spec"])
        await s.until(lambda: all(s.state(name).installed != old for name in s.cluster.nodes))
        assert told.most == 1

    drive(main, nodes=FLEET)


def test_an_invalid_edit_in_a_rollout_does_not_call_the_rest_ready(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(OLD)
        await s.ready()
        old = s.state("node-1").installed
        await s.patch({**NEW["spec"], "rollout": {"maxUnavailable": 1, "canary": {"count": 1, "pause": True}}})
        await s.until(lambda: any(s.state(name).installed != old for name in s.cluster.nodes))
        await s.says("Progressing", "False", "CanaryPaused")
        assert s.status()["nodes"] == {"total": 2, "ready": 1, "updating": 0, "failed": 0, "stuck": 0}
        told = Told(s)
        await s.patch({"phases": {"install": {**INSTALL, "volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}}})
        await s.says("Degraded", "True", "InvalidPhase")
        assert {status["nodes"]["ready"] for status in told.statuses} == {1}

    drive(main)
