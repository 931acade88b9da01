"""The controller is killed at the worst moments, held up, or is two: nothing is lost, and nothing done twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reconciler.api import names
from reconciler.controller import Controller
from reconciler.kube.lease import Elector
from reconciler.sim.loops import BINARY, RUNTIME, manifest, phase
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

Drive = Callable[..., None]
STATE = names.state_annotation(RUNTIME)
GAP = 15.0
"""Seconds that a cluster may be without a leader after one was killed."""


def full(**options: Any) -> dict[str, Any]:
    """Every phase has a payload that ends by itself."""
    phases = {
        "preInstall": phase("seconds=1"),
        "install": phase("seconds=1", f"drop={BINARY}"),
        "uninstall": phase("seconds=1", f"take={BINARY}"),
        "postUninstall": phase("seconds=1"),
    }
    return manifest(**{"unavailable": "100%", "bake": 3, **phases, **options})


class Gaps:
    """Measures the longest time without a leader."""

    def __init__(self, s: Any) -> None:
        self.longest = 0.0
        self._s = s
        s.cluster.spawn(self._watch())

    async def _watch(self) -> None:
        await self._s.until(lambda: self._s.cluster.leader is not None)
        led = self._s.now
        while True:
            if self._s.cluster.leader is not None:
                led = self._s.now
            self.longest = max(self.longest, self._s.now - led)
            await asyncio.sleep(0.1)


class KillAt:
    """Kills the leader as it sends the first request that `chosen` picks: lost, or done and not answered."""

    def __init__(self, s: Any, chosen: Callable[[Request], bool], *, done: bool) -> None:
        self.kills = 0
        self._s, self._chosen, self._done = s, chosen, done
        s.cluster.server.knobs.trouble = self._trouble

    def _trouble(self, request: Request) -> Trouble | None:
        if self.kills or not request.user.startswith("controller") or not self._chosen(request):
            return None
        self.kills = 1
        self._s.cluster.leader.kill()
        return Trouble(drop_after=True) if self._done else Trouble(drop_before=True)


def _state_patch(request: Request) -> Any:
    """The state that a request writes on a node: a dict, None for "absent", "" when it writes none."""
    if request.method != "PATCH" or "/nodes/" not in request.path:
        return ""
    annotations = json.loads(request.body or b"{}").get("metadata", {}).get("annotations", {})
    if STATE not in annotations:
        return ""
    return None if annotations[STATE] is None else json.loads(annotations[STATE])


def _enters(stage: str) -> Callable[[Any, Request], bool]:
    def chosen(s: Any, request: Request) -> bool:
        state = _state_patch(request)
        return isinstance(state, dict) and state["stage"] == stage

    return chosen


def _last_signal(s: Any, request: Request) -> bool:
    """The last node that still carries us is said to be clean."""
    carriers = [name for name in s.cluster.nodes if s.state(name) is not None]
    return _state_patch(request) is None and len(carriers) == 1


def _goes(s: Any, request: Request) -> bool:
    """The finalizer is taken off."""
    there = (s.runtime() or {}).get("metadata", {})
    return (
        request.method == "PATCH"
        and request.path.endswith(f"/noderuntimes/{RUNTIME}")
        and "deletionTimestamp" in there
        and json.loads(request.body or b"{}")["metadata"]["finalizers"] == []
    )


@pytest.mark.parametrize("done", [False, True], ids=["lost", "done-unanswered"])
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(_enters("pre-install"), id="h1-pre-install"),
        pytest.param(_enters("unconfigure"), id="h2-start-of-uninstall"),
        pytest.param(_goes, id="h3-object-goes"),
        pytest.param(_last_signal, id="h4-last-signal"),
    ],
)
def test_h_a_leader_killed_at_this_write_loses_nothing_and_is_missed_for_15_s_at_most(
    drive: Drive, point: Callable[[Any, Request], bool], done: bool
) -> None:
    async def main(s: Any) -> None:
        gaps = Gaps(s)
        await s.until(lambda: s.cluster.leader is not None)
        killer = KillAt(s, lambda request: point(s, request), done=done)
        await s.create(full())
        await s.ready()
        await s.delete()
        await s.gone()
        await asyncio.sleep(GAP)  # virtual: the object may be gone before anybody is missed
        assert killer.kills == 1
        assert 5 < gaps.longest <= GAP
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)
        assert s.pods_made() == 4 * len(s.cluster.nodes)

    drive(main, controllers=2)


@pytest.mark.parametrize("stage", ["install", "configure", "verify", "ready", "uninstall", "post-uninstall", "absent"])
def test_a_patch_that_arrives_after_its_sender_lost_the_lease_is_refused(drive: Drive, stage: str) -> None:
    async def main(s: Any) -> None:
        def chosen(method: str, path: str, body: bytes | None) -> bool:
            state = _state_patch(Request(method, path, body=body))
            return state is None if stage == "absent" else isinstance(state, dict) and state["stage"] == stage

        await s.until(lambda: s.cluster.leader is not None)
        older = s.cluster.leader
        older.stall_at(chosen)
        await s.create(full())
        if stage in ("uninstall", "post-uninstall", "absent"):
            await s.ready()
            await s.delete()
        await s.until(lambda: older.stalled)
        await s.until(lambda: s.cluster.leader not in (None, older))
        if stage in ("uninstall", "post-uninstall", "absent"):
            await s.until(lambda: s.runtime() is None)
        else:
            await s.ready()
        settled, made = s.stages(), s.pods_made()
        s.cluster.server.audit.clear()
        older.resume()
        await asyncio.sleep(20)
        late = [a for a in s.cluster.server.audit if a.user == f"controller:{older.identity}"]
        patched = [a.status for a in late if (a.method, a.target.kind.plural) == ("PATCH", "nodes")]
        assert set(patched) == {409}
        assert [a for a in late if a.method == "POST" and a.target.kind.plural == "pods"] == []
        assert s.stages() == settled
        if s.runtime() is not None:
            await s.delete()
        await s.gone()
        assert s.restarts("agent") == 2 * len(s.cluster.nodes)
        assert made + s.pods_made() == 4 * len(s.cluster.nodes)

    drive(main, controllers=2)


class Always(Elector):
    """Leads from its start on, whatever the Lease says."""

    is_over = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        await lead()

    @property
    def is_leader(self) -> bool:
        return not self.is_over


class Usurper(Controller):
    """A controller that does not know of the Lease: two of them lead at once, all the time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        own = self._elector
        self._elector: Always = Always(
            own._client,
            namespace=own._namespace,
            name=own._name,
            identity=own._identity,
            clock=own._clock,
            rng=own._rng,
        )


@pytest.mark.parametrize("unavailable", [1, "100%"])
def test_two_that_lead_at_once_keep_to_the_slots_and_do_nothing_twice(drive: Drive, unavailable: int | str) -> None:
    async def main(s: Any) -> None:
        for _ in range(2):
            await s.create(full(unavailable=unavailable))
            await s.ready(limit=300)
            await s.delete()
            await s.gone(limit=300)
        assert s.restarts("agent") == 4 * len(s.cluster.nodes)
        assert s.pods_made() == 8 * len(s.cluster.nodes)
        assert sum(1 for replica in s.cluster.replicas if replica.leads) == 2
        planted = [breach for breach in s.observer.broken if breach.invariant == "only-the-leader"]
        assert planted
        s.observer.broken[:] = [breach for breach in s.observer.broken if breach not in planted]

    drive(main, nodes=3, controllers=2, controller=Usurper)


class Resumed(Usurper):
    """One that was stopped (SIGSTOP) and goes on: its tasks still run, and its Lease is over."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._elector.is_over = True


def test_one_that_goes_on_after_its_lease_is_over_sends_no_write(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(full())
        await asyncio.sleep(60)
        product = [a for a in s.cluster.server.audit if a.user.startswith("controller")]
        assert {a.method for a in product} == {"GET", "WATCH"}
        assert set(s.stages().values()) == {"absent"}

    drive(main, controller=Resumed)
