"""Plays one plan in virtual time: faults while it lasts, then calm, then everything ready, at rest, and taken away."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.api import names
from reconciler.controller import Controller
from reconciler.kube.errors import ApiError, TransportError
from reconciler.kube.resources import NODERUNTIMES, NODES
from reconciler.sim import clock, kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import AgentFactory, Cluster, Options, running
from reconciler.sim.faults import FAULTS, World, people
from reconciler.sim.invariants import Observer
from tests.soak import specs
from tests.soak.leftovers import Fresh
from tests.soak.outcome import Outcome
from tests.soak.plans import Plan, Step
from tests.soak.timeline import Timeline, states

READY_WITHIN = 3600.0
"""Simulated seconds from the last fault until every node is ready, an admin retrying what was given up: three tries of
each of four phases (60 s each, backoff 10 to 300 s), and repairs, of which three an hour are made."""
GONE_WITHIN = 3600.0
RETRY_EVERY = 120.0
"""Seconds between two looks of that admin."""
REST = 600.0
"""Seconds in which a settled system must do nothing."""
SETTLE = 120.0
"""Seconds from the last thing seen to the beginning of that rest: an agent's report, an Event, a status."""
POLL = 1.0
TIDY = 60.0
"""Simulated seconds between two collections of garbage: at moments of our choice, because a finalizer may wake the
loop."""
SHARED_MEMORY = Path("/dev/shm")


class TooLong(Exception):
    """Something did not come to its end after all faults were over."""


@dataclass(frozen=True)
class Parts:
    """What the cluster is made of; another one is for planted defects."""

    agent: AgentFactory = real_agent
    controller: type[Controller] = Controller


def play(plan: Plan, parts: Parts = Parts()) -> Outcome:
    """Run it in this thread. Whatever breaks is in the outcome."""
    for name in ("reconciler", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    outcome = Outcome(plan)
    gc.collect()
    gc.freeze()
    gc.disable()
    folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    try:
        with tempfile.TemporaryDirectory(prefix="reconciler-soak-", dir=folder) as root:
            clock.run(_Play(plan, parts, outcome, Path(root)).run())
    except (Exception, clock.Livelock) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
        outcome.timeline.extend(traceback.format_exception(error))
    finally:
        gc.enable()
        gc.unfreeze()
    return outcome


class _Play:
    def __init__(self, plan: Plan, parts: Parts, outcome: Outcome, root: Path) -> None:
        self.plan = plan
        self.parts = parts
        self.outcome = outcome
        self.root = root
        self.rng = random.Random(f"specs/{plan.seed}")

    async def run(self) -> None:
        virtual = clock.VirtualClock()
        options = Options(
            root=self.root,
            clock=virtual,
            agent=self.parts.agent,
            controller=self.parts.controller,
            nodes=self.plan.nodes,
            seed=self.plan.seed,
            controllers=self.plan.controllers,
            over=self.plan.over,
        )
        async with running(options) as cluster:
            timeline = Timeline(cluster, self.outcome)
            observer = Observer(cluster)
            cluster.spawn(_tidy())
            try:
                await self._story(cluster, timeline)
            except TooLong as error:
                self.outcome.problems.append(str(error))
            finally:
                broken = observer.broken
                self.outcome.problems[:0] = [f"{b.invariant}: {b.what} (at {b.time:.3f} s)" for b in broken]
                timeline.end(f"{b.time:10.3f}  ? {b.invariant}: {b.what}" for b in broken)

    async def _story(self, cluster: Cluster, timeline: Timeline) -> None:
        for node in cluster.nodes.values():
            await node.daemon.served()
        fresh = Fresh(cluster)
        world = World(cluster, say=timeline.fault, bodies=specs.body, names=self.plan.runtimes)
        for name in self.plan.runtimes:
            await people.persist(lambda name=name: cluster.admin.create(NODERUNTIMES, specs.body(name, self.rng)))
        await self._faults(cluster, world)
        timeline.say("calm: no fault any more")
        await self._apply(cluster)
        await self._until_ready(cluster)
        timeline.say("ready")
        await self._rest(cluster, "ready")
        for name in self.plan.runtimes:
            await people.persist(lambda name=name: cluster.admin.delete(NODERUNTIMES, name))
        timeline.say("deleted")
        await self._until_gone(cluster)
        self.outcome.problems += [f"left behind: {line}" for line in await self._left(fresh)]
        await self._rest(cluster, "gone")

    # --- the faulty part ---

    async def _faults(self, cluster: Cluster, world: World) -> None:
        under_way: list[asyncio.Task[None]] = []
        begun = now()
        for step in self.plan.steps:
            await asyncio.sleep(max(0.0, begun + step.at - now()))
            under_way.append(cluster.spawn(_one(step, world)))
        await asyncio.sleep(max(0.0, begun + self.plan.seconds - now()))
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    # --- the calm after it ---

    async def _apply(self, cluster: Cluster) -> None:
        """An admin applies each NodeRuntime, whatever became of it before, and takes back every order."""
        for name in self.plan.runtimes:
            wanted = specs.body(name, self.rng)
            await self._until_object(cluster, name, wanted)

    async def _until_object(self, cluster: Cluster, name: str, wanted: dict[str, Any]) -> None:
        """One that is being deleted is waited for."""
        begun = now()
        while True:
            record = cluster.server.store.get(kinds.NODERUNTIMES, ("", name))
            if record is None:
                await people.persist(lambda: cluster.admin.create(NODERUNTIMES, wanted))
                return
            if "deletionTimestamp" not in record.object["metadata"]:
                body = {**record.object, "spec": wanted["spec"]}
                if await settled(cluster.admin.replace(NODERUNTIMES, name, body)):
                    return
            if now() - begun > GONE_WITHIN:
                raise TooLong(f"not gone: {name}, deleted while there were faults; {where(cluster)}")
            await self._retry(cluster)
            await asyncio.sleep(POLL)

    async def _until_ready(self, cluster: Cluster) -> None:
        begun = now()
        while not self._ready(cluster):
            if now() - begun > READY_WITHIN:
                raise TooLong(f"not ready: {where(cluster)}")
            await self._retry(cluster)
            await asyncio.sleep(POLL)

    async def _until_gone(self, cluster: Cluster) -> None:
        begun = now()
        while any(True for _ in cluster.server.store.all(kinds.NODERUNTIMES)):
            if now() - begun > GONE_WITHIN:
                raise TooLong(f"not gone: {where(cluster)}")
            await self._retry(cluster)
            await asyncio.sleep(POLL)

    async def _retry(self, cluster: Cluster) -> None:
        """What `reconciler retry` writes, on every node that is in trouble, now and then."""
        if now() % RETRY_EVERY >= POLL:
            return
        for name in sorted(cluster.nodes):
            for runtime, state in states(cluster, name).items():
                if state.get("error") or state.get("stage") == "failed":
                    annotation = {names.retry_annotation(runtime): "true"}
                    await people.persist(
                        lambda name=name, annotation=annotation: cluster.admin.patch(
                            NODES, name, {"metadata": {"annotations": annotation}}
                        )
                    )

    def _ready(self, cluster: Cluster) -> bool:
        """Labelled so, and served in truth, of the present revision."""
        for runtime in self.plan.runtimes:
            record = cluster.server.store.get(kinds.NODERUNTIMES, ("", runtime))
            if record is None:
                return False
            obj = record.object
            status = obj.get("status") or {}
            counts = status.get("nodes") or {}
            told = status.get("observedGeneration") == obj["metadata"]["generation"]
            if not (told and counts.get("ready") == counts.get("total") == len(cluster.nodes)):
                return False
            wanted = {handler["name"] for handler in obj["spec"]["handlers"]}
            if not all(wanted <= set(node.daemon.loaded.handlers) for node in cluster.nodes.values()):
                return False
        return True

    async def _left(self, fresh: Fresh) -> list[str]:
        for _ in range(int(SETTLE / POLL)):
            if not fresh.left():
                break
            await asyncio.sleep(POLL)
        return fresh.left()

    async def _rest(self, cluster: Cluster, what: str) -> None:
        """Ten minutes without a write and without a restart."""
        await asyncio.sleep(SETTLE)
        begun, starts = now(), _starts(cluster)
        await asyncio.sleep(REST)
        wrote = Counter(
            f"{a.user} {a.method} {a.target.kind.plural}/{a.target.name}"
            for a in cluster.server.audit
            if a.time > begun and _ours(a.user) and a.method not in ("GET", "WATCH") and a.target.kind != kinds.LEASES
        )
        for line, count in sorted(wrote.items()):
            self.outcome.problems.append(f"no rest: when all was {what}: {count} times {line}")
        if _starts(cluster) != starts:
            self.outcome.problems.append(f"no rest: when all was {what}: containerd was restarted")


def _starts(cluster: Cluster) -> int:
    return sum(len(node.daemon.starts) for node in cluster.nodes.values())


def _ours(user: str) -> bool:
    return user.startswith(("controller", "agent"))


async def _one(step: Step, world: World) -> None:
    await FAULTS[step.fault].cause(world, random.Random(step.seed))


async def _tidy() -> None:
    while True:
        await asyncio.sleep(TIDY)
        gc.collect()


async def settled(call: Awaitable[Any]) -> bool:
    """Whether it was done."""
    try:
        await call
    except (ApiError, TransportError):
        return False
    return True


def where(cluster: Cluster) -> str:
    """Where everything is, in one line."""
    parts = []
    for name in sorted(cluster.nodes):
        for runtime, state in states(cluster, name).items():
            error = state.get("error") or {}
            told = f" ({error.get('reason')}: {error.get('message')})" if error else ""
            parts.append(f"{runtime} on {name} is {state.get('stage')}{told}")
    for (_, name), record in cluster.server.store.all(kinds.NODERUNTIMES):
        status = record.object.get("status") or {}
        conditions = [f"{c['type']}={c['status']}/{c.get('reason', '')}" for c in status.get("conditions", ())]
        parts.append(f"{name}: {status.get('nodes')} {' '.join(conditions)}")
    return "; ".join(parts) or "nothing is there"


def now() -> float:
    return asyncio.get_running_loop().time()
