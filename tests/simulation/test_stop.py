"""`stop` is one write, after which nothing new begins within 1 s on any process, at whatever step it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from reconciler.agent import Agent
from reconciler.api import names
from reconciler.api.node import NodeState, decode_state
from reconciler.kube.client import Client
from reconciler.kube.resources import CONFIGMAPS
from reconciler.phases.stop import WORK
from reconciler.sim import kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.failures import ApiFailure
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase
from reconciler.sim.node import SimNode
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

Drive = Callable[..., None]
STATE = names.state_annotation(RUNTIME)
MAPS = CONFIGMAPS.path(names.NAMESPACE)
SOON = 1.0
"""Seconds after the write in which the last thing may begin."""
LONG = 60.0
"""Seconds for which everything stays stopped: longer than any payload, and than any pause between two tries."""


def full(**options: Any) -> dict[str, Any]:
    """Every phase has a payload that ends by itself."""
    phases = {
        "preInstall": phase("seconds=1"),
        "install": phase("seconds=1", f"drop={BINARY}"),
        "uninstall": phase("seconds=1", f"take={BINARY}"),
        "postUninstall": phase("seconds=1"),
    }
    return manifest(**{"unavailable": "100%", "bake": 3, **phases, **options})


class Switch:
    """Stops everything at the first request that `chosen` picks, right before it or right after it is done.

    It keeps what begins, and when: whatever the product asks of the API server by which somebody is put to work, and
    first writes of agents.
    """

    def __init__(self, s: Any, begun: list[tuple[float, str]], chosen: Callable[[Any, Request], bool]) -> None:
        self.begun = begun
        self.stopped_at = float("inf")
        self.refusal: ApiFailure | None = None
        """Answered to the chosen request."""
        self._s, self._chosen, self._after = s, chosen, False
        s.cluster.server.knobs.trouble = self._look

    def arm(self, *, after: bool) -> None:
        self._after = after
        self._armed = True

    _armed = False

    @property
    def late(self) -> list[str]:
        """What began more than a second after the stop."""
        return [what for when, what in self.begun if when > self.stopped_at + SOON]

    def stop(self) -> None:
        """The one write."""
        self._armed = False
        self.stopped_at = self._s.now
        body = {"metadata": {"name": names.STOP_NAME}, "data": {names.STOP_BY: "a person"}}
        self._s.cluster.server.answer(Request("POST", MAPS, body=json.dumps(body).encode(), user="admin"))

    async def resume(self) -> None:
        self.stopped_at = float("inf")
        await self._s.cluster.admin.delete(CONFIGMAPS, names.STOP_NAME, names.NAMESPACE)

    def _look(self, request: Request) -> Trouble | None:
        if (what := begins(self._s, request)) and request.user.startswith("controller"):
            self.begun.append((self._s.now, what))
        if not self._armed or not self._chosen(self._s, request):
            return None
        if self._after:
            self._armed = False
            asyncio.get_running_loop().call_soon(self.stop)
        else:
            self.stop()
        return None if self.refusal is None else Trouble(failure=self.refusal)


def begins(s: Any, request: Request) -> str:
    """What is begun by a request; empty when nothing is."""
    body = json.loads(request.body) if request.body else {}
    if request.query.get("dryRun") or request.method == "GET":
        return ""
    if request.method == "POST" and request.path.endswith("/pods"):
        return f"pod {body['metadata']['name']}"
    if request.method == "DELETE" and "/pods/" in request.path and body.get("gracePeriodSeconds", 1):
        return f"kill {request.path}"
    if request.path.endswith(f"/{RUNTIME}/status"):
        more = set(body["status"].get("inWork", ())) - set(s.status().get("inWork", ()))
        return f"slots of {sorted(more)}" if more else ""
    state = written_state(request)
    if isinstance(state, NodeState) and state.stage in WORK:
        node = request.path.split("/")[-1]
        old = s.state(node)
        if old is None or (old.stage, old.target, old.attempt) != (state.stage, state.target, state.attempt):
            return f"{node} enters {state.stage}"
    return ""


def written_state(request: Request) -> NodeState | str | None:
    """The state that a request writes on a node: None for "absent", "" when it writes none."""
    if request.method != "PATCH" or "/nodes/" not in request.path:
        return ""
    annotations = json.loads(request.body or b"{}").get("metadata", {}).get("annotations", {})
    if STATE not in annotations:
        return ""
    return None if annotations[STATE] is None else decode_state(annotations[STATE])


# --- at which request everything is stopped ---


def enters(stage: str) -> Callable[[Any, Request], bool]:
    def chosen(s: Any, request: Request) -> bool:
        state = written_state(request)
        return state is None if stage == "absent" else isinstance(state, NodeState) and state.stage == stage

    return chosen


def makes(stage: str) -> Callable[[Any, Request], bool]:
    def chosen(s: Any, request: Request) -> bool:
        if request.method != "POST" or not request.path.endswith("/pods") or request.query.get("dryRun"):
            return False
        return bool(json.loads(request.body or b"{}")["metadata"]["labels"].get(names.PHASE_LABEL) == stage)

    return chosen


def removes_a_pod(s: Any, request: Request) -> bool:
    return request.method == "DELETE" and "/pods/" in request.path and request.user.startswith("controller")


def slot(s: Any, request: Request) -> bool:
    return begins(s, request).startswith("slots")


def asks(stage: str, number: int) -> Callable[[Any, Request], bool]:
    """The agent asks for the stop: first before it plans, then right before its first write."""
    seen: dict[str, int] = {}

    def chosen(s: Any, request: Request) -> bool:
        if not request.user.startswith("agent") or not request.path.startswith(MAPS) or not s.stage_somewhere(stage):
            return False
        seen[request.user] = seen.get(request.user, 0) + 1
        return seen[request.user] == number

    return chosen


def reports(stage: str) -> Callable[[Any, Request], bool]:
    def chosen(s: Any, request: Request) -> bool:
        agent = request.user.startswith("agent") and request.method == "PATCH"
        return agent and f'\\"stage\\":\\"{stage}\\"' in (request.body or b"").decode()

    return chosen


INSTALL = [
    pytest.param(lambda s, r: r.path.endswith("/controllerrevisions") and r.method == "POST", id="revision"),
    pytest.param(slot, id="slot"),
    pytest.param(enters("pre-install"), id="enters-pre-install"),
    pytest.param(makes("pre-install"), id="pre-install-pod"),
    pytest.param(enters("install"), id="enters-install"),
    pytest.param(removes_a_pod, id="pod-removed"),
    pytest.param(makes("install"), id="install-pod"),
    pytest.param(enters("configure"), id="enters-configure"),
    pytest.param(asks("configure", 1), id="agent-plans"),
    pytest.param(asks("configure", 2), id="agent-writes"),
    pytest.param(reports("configure"), id="agent-reports"),
    pytest.param(enters("verify"), id="enters-verify"),
    pytest.param(enters("ready"), id="enters-ready"),
]
REMOVAL = [
    pytest.param(slot, id="slot"),
    pytest.param(enters("unconfigure"), id="enters-unconfigure"),
    pytest.param(asks("unconfigure", 1), id="agent-plans"),
    pytest.param(asks("unconfigure", 2), id="agent-writes"),
    pytest.param(reports("unconfigure"), id="agent-reports"),
    pytest.param(enters("uninstall"), id="enters-uninstall"),
    pytest.param(makes("uninstall"), id="uninstall-pod"),
    pytest.param(enters("post-uninstall"), id="enters-post-uninstall"),
    pytest.param(makes("post-uninstall"), id="post-uninstall-pod"),
    pytest.param(enters("absent"), id="enters-absent"),
]
SIDES = pytest.mark.parametrize("after", [False, True], ids=["before", "after"])


@contextmanager
def watched(drive: Drive) -> Iterator[tuple[Drive, list[tuple[float, str]]]]:
    """`drive` with agents whose first writes go into the list."""
    begun: list[tuple[float, str]] = []

    def agent(node: SimNode, client: Client) -> Agent:
        loop = asyncio.get_running_loop()

        def trace(step: str) -> None:
            if step == "keep":  # the bytes of a change are laid down before anything else is
                begun.append((loop.time(), f"change of {node.name}"))

        return real_agent(node, client, trace=trace)

    yield partial(drive, agent=agent), begun


def pending(s: Any) -> list[str]:
    """Nodes whose host holds a change that is neither proven nor undone."""
    journals = ((name, node.root / "var/lib/runtime-reconciler/journal.json") for name, node in s.cluster.nodes.items())
    return [name for name, path in journals if path.exists() and json.loads(path.read_bytes()).get("pending")]


def running(s: Any) -> list[str]:
    """Phase pods that have not ended."""
    return [
        name
        for (_, name), record in s.cluster.server.store.all(kinds.PODS)
        if names.PHASE_LABEL in (record.object["metadata"].get("labels") or {})
        and (record.object.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


async def stays_stopped(s: Any, switch: Switch) -> None:
    await s.until(lambda: switch.stopped_at < s.now)
    await s.says("Progressing", "False", "Stopped")
    await asyncio.sleep(LONG)
    settled, writes = s.stages(), len(s.touches())
    assert (pending(s), running(s)) == ([], [])
    await asyncio.sleep(LONG)
    assert (s.stages(), len(s.touches())) == (settled, writes)
    assert switch.late == []
    assert s.status().get("nodes", {}).get("stuck", 0) == 0


async def ends_well(s: Any) -> None:
    """As if nothing had been stopped: every payload ran once, and containerd was restarted once for each change."""
    if s.runtime() is not None and "deletionTimestamp" not in s.runtime()["metadata"]:
        await s.ready()
        await s.delete()
    await s.gone()
    assert s.pods_made() == 4 * len(s.cluster.nodes)
    assert s.restarts("agent") == 2 * len(s.cluster.nodes)


@SIDES
@pytest.mark.parametrize("chosen", INSTALL)
def test_an_install_stopped_here_begins_nothing_more_and_goes_on_after_resume(
    drive: Drive, chosen: Callable[[Any, Request], bool], after: bool
) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, chosen)
            await s.until(lambda: s.cluster.leader is not None)
            switch.arm(after=after)
            await s.create(full())
            await stays_stopped(s, switch)
            await switch.resume()
            await s.until(lambda: bool(s.events("Resumed")))
            await ends_well(s)

        drive_watched(main)


@SIDES
@pytest.mark.parametrize("chosen", REMOVAL)
def test_a_removal_stopped_here_begins_nothing_more_and_goes_on_after_resume(
    drive: Drive, chosen: Callable[[Any, Request], bool], after: bool
) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, chosen)
            await s.create(full())
            await s.ready()
            switch.arm(after=after)
            await s.delete()
            await s.until(lambda: switch.stopped_at < s.now)
            if s.runtime() is not None:  # the last node was clean already
                await stays_stopped(s, switch)
            assert switch.late == []
            await switch.resume()
            await ends_well(s)

        drive_watched(main)


# --- on each kind of process ---


@pytest.mark.parametrize("stage", ["configure", "unconfigure"])
@pytest.mark.parametrize("number", [1, 2], ids=["plan", "first-write"])
def test_an_agent_that_asks_after_the_stop_writes_nothing(drive: Drive, stage: str, number: int) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, asks(stage, number))
            await s.until(lambda: s.cluster.leader is not None)
            if stage == "unconfigure":
                await s.create(full())
                await s.ready()
            switch.arm(after=False)
            await (s.delete() if stage == "unconfigure" else s.create(full()))
            await stays_stopped(s, switch)
            assert [what for when, what in begun if what.startswith("change") and when >= switch.stopped_at] == []
            assert s.stage_somewhere(stage)
            await switch.resume()
            lifted = s.now
            await s.until(lambda: not s.stage_somewhere(stage))
            assert s.now - lifted < 15  # an agent asks again within 10 s
            await ends_well(s)

        drive_watched(main)


@pytest.mark.parametrize("stage", ["configure", "unconfigure"])
def test_a_partitioned_agent_starts_nothing_while_it_is_cut_off_and_nothing_when_it_comes_back(
    drive: Drive, stage: str
) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            cut = s.cluster.nodes["node-1"].agent_link

            def chosen(s: Any, request: Request) -> bool:
                """node-1 asks before it plans: its last words."""
                first = asks_of_node_1(s, request)
                cut.cut = cut.cut or first
                return first

            asks_of_node_1 = partial(_asks_of, "agent:node-1", stage)
            switch = Switch(s, begun, chosen)
            await s.until(lambda: s.cluster.leader is not None)
            if stage == "unconfigure":
                await s.create(full())
                await s.ready()
            switch.arm(after=True)  # the answer would be that nothing is stopped; it is lost
            await (s.delete() if stage == "unconfigure" else s.create(full()))
            await s.until(lambda: switch.stopped_at < s.now)
            await asyncio.sleep(LONG)
            cut.cut = False
            await asyncio.sleep(LONG)
            mine = [what for when, what in begun if what == "change of node-1" and when >= switch.stopped_at]
            assert (mine, switch.late, s.stages()["node-1"]) == ([], [], stage)
            await switch.resume()
            await ends_well(s)

        drive_watched(main)


def _asks_of(user: str, stage: str, s: Any, request: Request) -> bool:
    return request.user == user and request.path.startswith(MAPS) and s.stage_somewhere(stage)


def test_a_controller_whose_watches_died_without_a_word_begins_nothing(drive: Drive) -> None:
    """The next try of a payload comes by time, and needs no event."""
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, lambda s, request: False)
            await s.until(lambda: s.cluster.leader is not None)
            await s.create(full(install=phase("exit=1")))
            await s.until(lambda: any(state and state.attempt == 2 for state in map(s.state, s.cluster.nodes)))
            s.cluster.leader.kill_watches()
            switch.stop()
            made = s.pods_made()
            await asyncio.sleep(LONG)
            assert (switch.late, s.pods_made()) == ([], made)
            await switch.resume()
            await s.until(lambda: s.pods_made() > made, limit=200)

        drive_watched(main)


def test_a_write_that_is_tried_again_for_seconds_begins_nothing_late(drive: Drive) -> None:
    """The API server asks to try again in 3 s, as it does with too much to do: the stop comes meanwhile."""
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, makes("install"))
            await s.until(lambda: s.cluster.leader is not None)
            switch.refusal = ApiFailure(429, "TooManyRequests", "later", retry_after=3)
            switch.arm(after=True)
            await s.create(full())
            await s.until(lambda: switch.stopped_at < s.now)
            switch.refusal = None
            await stays_stopped(s, switch)
            await switch.resume()
            await ends_well(s)

        drive_watched(main)


def test_a_leader_that_takes_over_while_everything_is_stopped_begins_nothing(drive: Drive) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, enters("install"))
            await s.until(lambda: s.cluster.leader is not None)
            switch.arm(after=True)
            await s.create(full())
            await s.until(lambda: switch.stopped_at < s.now)
            first = s.cluster.leader
            await asyncio.sleep(LONG)
            first.kill()
            await s.until(lambda: s.cluster.leader not in (None, first))
            await stays_stopped(s, switch)
            assert len(s.events("Stopped")) == 1
            await switch.resume()
            await ends_well(s)

        drive_watched(main, controllers=2)


def test_a_deletion_holds_while_everything_is_stopped(drive: Drive) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, lambda s, request: False)
            await s.create(full())
            await s.ready()
            switch.stop()
            await asyncio.sleep(SOON)
            await s.delete()
            await stays_stopped(s, switch)
            assert set(s.stages().values()) == {"ready"}
            assert all("kata-qemu" in node.daemon.loaded.handlers for node in s.cluster.nodes.values())
            assert s.runtime()["metadata"]["finalizers"] == [names.FINALIZER]
            await switch.resume()
            await ends_well(s)

        drive_watched(main)


def test_a_runtime_that_is_made_while_everything_is_stopped_is_not_even_prepared(drive: Drive) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, lambda s, request: False)
            await s.until(lambda: s.cluster.leader is not None)
            switch.stop()
            await asyncio.sleep(SOON)
            await s.create(full())
            await stays_stopped(s, switch)
            assert s.touches() == []
            assert not list(s.cluster.server.store.all(kinds.CONTROLLERREVISIONS))
            assert not list(s.cluster.server.store.all(kinds.RUNTIMECLASSES))
            await switch.resume()
            await ends_well(s)

        drive_watched(main)


# --- payloads that sleep, deadlines, and changes that do not work ---


def test_a_payload_that_sleeps_is_not_killed_before_resume(drive: Drive) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, lambda s, request: False)
            await s.create(manifest(unavailable="100%"))
            await s.until(lambda: running(s) != [])
            switch.stop()
            await s.says("Progressing", "False", "Stopped")
            before = running(s)
            await asyncio.sleep(LONG)
            assert (switch.late, running(s)) == ([], before)
            assert any(node["metadata"]["labels"].get("sim/installed") for node in map(s.node, s.cluster.nodes))
            await switch.resume()
            await s.ready()
            await s.delete()
            await s.gone()

        drive_watched(main)


def test_deadlines_stand_still_for_as_long_as_everything_is_stopped(drive: Drive) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, asks("configure", 1))
            await s.until(lambda: s.cluster.leader is not None)
            switch.arm(after=False)
            await s.create(full())
            await s.says("Progressing", "False", "Stopped")
            await asyncio.sleep(3600)
            assert s.condition("Stuck")["status"] == "False"
            await switch.resume()
            await s.ready()
            assert s.events("Stuck") == []
            await s.delete()
            await s.gone()

        drive_watched(main)


def test_a_change_past_its_first_write_that_does_not_work_is_undone_although_everything_is_stopped(
    drive: Drive,
) -> None:
    with watched(drive) as (drive_watched, begun):

        async def main(s: Any) -> None:
            switch = Switch(s, begun, lambda s, request: False)
            node = s.cluster.nodes["node-1"]
            config = (node.root / "etc/containerd/config.toml").read_bytes()
            node.daemon.breaks = HANDLER
            await s.until(lambda: s.cluster.leader is not None)
            await s.create(full())
            await s.until(lambda: any(what == "change of node-1" for _, what in begun))
            switch.stop()
            await asyncio.sleep(LONG)
            assert (pending(s), switch.late) == ([], [])
            assert (node.root / "etc/containerd/config.toml").read_bytes() == config
            assert node.daemon.serving
            assert s.stages() == {"node-1": "configure"}  # the undo is over; the removal that follows has not begun
            assert [start.initiator for start in node.daemon.starts if not start.error] == ["boot", "agent"]

        drive_watched(main, nodes=1)
