"""The main job: install, use and uninstall a runtime on every node, in a loop, and measure what it took."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reconciler.api import names
from reconciler.kube.errors import AlreadyExists, ApiError, NotFound, TransportError
from reconciler.kube.resources import NODERUNTIMES, PODS
from reconciler.sim import judge, kinds
from reconciler.sim.cluster import Cluster

log = logging.getLogger(__name__)

RUNTIME = "kata"
HANDLER = "kata-qemu"
BINARY = "/opt/kata/bin/containerd-shim-kata-v2"
POLL = 0.05
SETTLE = 40.0
"""Seconds after the object is gone in which what still runs must end: a kill may have hit an outage just then."""
WORKLOAD_NAMESPACE = "default"


class TooLong(Exception):
    """A step of a loop did not end within its limit."""


@dataclass
class Summary:
    """What a run came to, as the judge saw it."""

    installs: list[float] = field(default_factory=list)
    """Seconds from the create to every node ready, by loop."""
    uninstalls: list[float] = field(default_factory=list)
    """Seconds from the delete to the object being gone."""
    problems: list[str] = field(default_factory=list)
    restarts: Counter[str] = field(default_factory=Counter)
    """Starts of containerd by who asked for them, the boots left out."""
    outages: int = 0
    longest_outage: float = 0.0
    failed_kills: int = 0
    """Kills by a kubelet that hit an outage."""
    kill_retries: int = 0
    """Containers and sandboxes that agents stopped through CRI."""
    longest_wait: float = 0.0
    """Longest time that a phase pod was Terminating, in seconds."""
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not self.problems


def manifest(*, bake: int = 1, unavailable: int | str = 2, grace: int = 1, **phases: Any) -> dict[str, Any]:
    """A NodeRuntime whose payload drops a binary, labels its node and sleeps, deaf to SIGTERM, as kata-deploy does.

    So its pods have to be killed, and a kill is where an outage of containerd hurts. `phases` replace ours.
    """
    default = {
        "install": phase(f"drop={BINARY}", done="sim/installed=true", grace=grace),
        "uninstall": phase(f"take={BINARY}", done="sim/installed=false", grace=grace),
    }
    handler = {
        "name": HANDLER,
        "runtimeType": "io.containerd.kata-qemu.v2",
        "runtimePath": BINARY,
        "runtimeClass": {"name": HANDLER},
    }
    return {
        "metadata": {"name": RUNTIME},
        "spec": {
            "handlers": [handler],
            "rollout": {"maxUnavailable": unavailable, "canary": {"count": 1}, "bakeSeconds": bake},
            "phases": {**default, **phases},
        },
    }


def user_pod(name: str, node: str) -> dict[str, Any]:
    """Somebody's pod on `node` that runs on our handler until it is deleted."""
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "runtimeClassName": HANDLER,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "sim/payload:1", "args": ["hang"]}],
        },
    }


def phase(
    *arguments: str, done: str = "", grace: int = 5, hook: tuple[str, ...] = (), deaf: bool = True
) -> dict[str, Any]:
    """One phase. `done`: the node label KEY=VALUE by which it says so before it sleeps for ever.

    `hook`: its preStop hook. `deaf`: a sleeping one does not hear SIGTERM.
    """
    body: dict[str, Any] = {
        "image": "sim/payload:1",
        "args": ["seconds=0.3", *arguments],
        "terminationGracePeriodSeconds": grace,
    }
    if done:
        key, _, value = done.partition("=")
        body["args"] += [f"label={done}", "hang", *(["ignore-term"] if deaf else [])]
        body["completion"] = {"nodeLabel": {"key": key, "value": value}}
    if hook:
        body["lifecycle"] = {"preStop": {"exec": {"command": list(hook)}}}
    return body


class Loops:
    """Drives a cluster; `step` is told what is being done, for the live view."""

    def __init__(self, cluster: Cluster, body: dict[str, Any], *, limit: float = 300.0) -> None:
        """`limit` in seconds for each install and each uninstall."""
        self.summary = Summary()
        self.step = "starting"
        self.loop = 0
        self._cluster = cluster
        self._body = body
        self._limit = limit
        self._terminating: dict[str, float] = {}

    async def run(self, loops: int) -> Summary:
        """All loops; stops at the first one that cannot be finished."""
        before = await asyncio.to_thread(judge.look, self._cluster)
        for self.loop in range(1, loops + 1):
            try:
                await self._one(before)
            except TooLong as error:
                self.summary.problems.append(f"loop {self.loop}: {error}")
                break
            if self.summary.problems:
                break
        self.count()
        self.step = "done"
        return self.summary

    def count(self) -> None:
        """Read the figures off the world; may be called at any time."""
        nodes = list(self._cluster.nodes.values())
        starts = [start for node in nodes for start in node.daemon.starts if start.initiator != "boot"]
        outages = [end - begin for node in nodes for begin, end in node.daemon.outages if begin > 0]
        self.summary.restarts = Counter(start.initiator for start in starts)
        self.summary.outages = len(outages)
        self.summary.longest_outage = max(outages, default=0.0)
        self.summary.failed_kills = sum(node.kubelet.failed_kills for node in nodes)
        self.summary.kill_retries = sum(node.stops for node in nodes)

    async def watch_pods(self) -> None:
        """Measures how long phase pods are Terminating; runs beside the loops."""
        while True:
            now = _now()
            seen = set(self._terminating_pods())
            for uid in seen:
                begun = self._terminating.setdefault(uid, now)
                self.summary.longest_wait = max(self.summary.longest_wait, now - begun)
            for uid in [*self._terminating]:
                if uid not in seen:
                    del self._terminating[uid]
            await asyncio.sleep(POLL)

    async def _one(self, before: judge.World) -> None:
        begun = _now()
        self.step = "install"
        await self._create()
        await self._until(self._all_ready, "install")
        self.summary.installs.append(_now() - begun)
        self.step = "use"
        await self._use()
        begun = _now()
        self.step = "uninstall"
        await self._delete()
        await self._until(self._gone, "uninstall")
        self.summary.uninstalls.append(_now() - begun)
        self.step = "judge"
        await self._judge(before)

    async def _create(self) -> None:
        try:
            await _persist(lambda: self._cluster.admin.create(NODERUNTIMES, self._body))
        except AlreadyExists:
            return

    async def _delete(self) -> None:
        await _persist(lambda: self._cluster.admin.delete(NODERUNTIMES, RUNTIME))

    async def _use(self) -> None:
        """A pod with the runtime class on every node: the handler serves what was promised."""
        for name in self._cluster.nodes:
            await self._cluster.admin.create(PODS, user_pod(f"uses-{name}", name), WORKLOAD_NAMESPACE)
        await self._until(lambda: all(phase == "Running" for phase in self._users()), "pods on the new handler")
        for name in self._cluster.nodes:
            await self._cluster.admin.delete(PODS, f"uses-{name}", WORKLOAD_NAMESPACE)
        await self._until(lambda: not self._users(), "end of the pods on the new handler")

    async def _judge(self, before: judge.World) -> None:
        end = _now() + SETTLE
        left = await asyncio.to_thread(judge.left_behind, self._cluster, before)
        while left and _now() < end:
            await asyncio.sleep(POLL)
            left = await asyncio.to_thread(judge.left_behind, self._cluster, before)
        self.summary.problems += [f"loop {self.loop}: {line}" for line in left]

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        end = _now() + self._limit
        while not holds():
            if _now() > end:
                raise TooLong(f"{what} did not end within {self._limit:.0f} s; {self._where()}")
            await asyncio.sleep(POLL)

    def _where(self) -> str:
        label = names.stage_label(RUNTIME)
        stages = {name: self._labels(name).get(label, "absent") for name in self._cluster.nodes}
        return ", ".join(f"{name}: {stage}" for name, stage in stages.items())

    def _all_ready(self) -> bool:
        """Labelled so, and served in truth."""
        label = names.stage_label(RUNTIME)
        return all(
            self._labels(name).get(label) == "ready" and HANDLER in node.daemon.loaded.handlers
            for name, node in self._cluster.nodes.items()
        )

    def _gone(self) -> bool:
        return self._cluster.server.store.get(kinds.NODERUNTIMES, ("", RUNTIME)) is None

    def _users(self) -> list[str]:
        pods = self._cluster.server.store.all(kinds.PODS)
        return [
            str((record.object.get("status") or {}).get("phase"))
            for (namespace, _), record in pods
            if namespace == WORKLOAD_NAMESPACE
        ]

    def _labels(self, node: str) -> dict[str, str]:
        record = self._cluster.server.store.get(kinds.NODES, ("", node))
        found: dict[str, str] = {} if record is None else record.object["metadata"].get("labels") or {}
        return found

    def _terminating_pods(self) -> list[str]:
        pods = self._cluster.server.store.all(kinds.PODS)
        return [
            record.object["metadata"]["uid"]
            for _, record in pods
            if "deletionTimestamp" in record.object["metadata"]
            and (record.object["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
        ]


async def _persist(call: Callable[[], Any]) -> None:
    """As a person at a keyboard would: again until it is done."""
    while True:
        try:
            await call()
            return
        except NotFound:
            return
        except AlreadyExists:
            raise
        except (ApiError, TransportError) as error:
            log.debug("tried again", extra={"error": str(error)})
            await asyncio.sleep(POLL)


def _now() -> float:
    return asyncio.get_running_loop().time()
