"""The judge: looks at the world itself (disks, shims, API objects, the daemons' own logs), never at our reports.

`World` is taken before the first loop; `left_behind` compares it with a later moment. `Watcher` checks
what must hold at every moment while a run goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.api import names
from reconciler.cri.api import ContainerState
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.kinds import Object
from reconciler.sim.node import SimNode

LOOKED_AT = ("etc", "opt", "usr/local", "var/lib/runtime-reconciler")
"""Below a node's root: what an installer may touch."""
LOCK = "var/lib/runtime-reconciler/lock"
"""The lock file is never deleted (design section 6.7)."""
LEFT = (names.STATE_ANNOTATION_PREFIX, names.RETRY_ANNOTATION_PREFIX, names.SKIP_ANNOTATION_PREFIX)
"""Annotations of Nodes that are gone with the runtime they are for."""
PERIOD = 0.05
"""Seconds between two looks of the watcher."""


@dataclass(frozen=True)
class World:
    """How the nodes were before anything was done."""

    disks: Mapping[str, Mapping[str, str]]
    """Node → path → digest of the bytes."""
    labels: Mapping[str, Mapping[str, str]]


def look(cluster: Cluster) -> World:
    """Blocks on the disk."""
    return World(
        disks={name: disk(node.root) for name, node in cluster.nodes.items()},
        labels={name: dict(_node(cluster, name)["metadata"].get("labels") or {}) for name in cluster.nodes},
    )


def disk(root: Path) -> dict[str, str]:
    """Path → digest of every file that an installer may have touched."""
    found = {}
    for part in LOOKED_AT:
        for path in sorted((root / part).rglob("*")):
            relative = str(path.relative_to(root))
            if path.is_file() and relative != LOCK:
                found[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def left_behind(cluster: Cluster, before: World) -> list[str]:
    """Everything that a finished uninstall should have taken away, one line each."""
    return [*_objects(cluster), *_marks(cluster, before), *_disks(cluster, before), *_processes(cluster)]


def _objects(cluster: Cluster) -> Iterator[str]:
    store = cluster.server.store
    for kind in (kinds.NODERUNTIMES, kinds.RUNTIMECLASSES, kinds.CONTROLLERREVISIONS):
        for (_, name), _ in store.all(kind):
            yield f"{kind.kind} {name} is left"
    for (_, name), record in store.all(kinds.PODS):
        if (record.object["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE:
            yield f"phase pod {name} is left"


def _marks(cluster: Cluster, before: World) -> Iterator[str]:
    for name in cluster.nodes:
        meta = _node(cluster, name)["metadata"]
        labels = meta.get("labels") or {}
        for key in sorted(set(labels) | set(before.labels[name])):
            if labels.get(key) != before.labels[name].get(key):
                yield f"{name}: label {key} is {labels.get(key)!r}, it was {before.labels[name].get(key)!r}"
        for key in sorted(meta.get("annotations") or {}):
            if key.startswith(LEFT):
                yield f"{name}: annotation {key} is left"


def _disks(cluster: Cluster, before: World) -> Iterator[str]:
    for name, node in cluster.nodes.items():
        now, then = disk(node.root), before.disks[name]
        for path in sorted(set(now) | set(then)):
            if now.get(path) != then.get(path):
                what = "is left" if path not in then else "is gone" if path not in now else "is not as it was"
                yield f"{name}: /{path} {what}"


def _processes(cluster: Cluster) -> Iterator[str]:
    for name, node in cluster.nodes.items():
        for process in node.runtime.processes.values():
            if process.state is not ContainerState.EXITED:
                yield f"{name}: a container of pod {process.pod_uid} still runs"
        for sandbox in node.runtime.sandboxes.values():
            if sandbox.ready:
                yield f"{name}: the sandbox of {sandbox.namespace}/{sandbox.name} is still ready"
        if not node.daemon.serving:
            yield f"{name}: containerd does not serve ({node.daemon.unit.active}, {node.daemon.phase.value})"


class Watcher:
    """What must hold at every moment; `broken` collects each breach once."""

    def __init__(self, cluster: Cluster) -> None:
        self.broken: list[str] = []
        self._cluster = cluster
        self._said: set[str] = set()
        self._touched: set[tuple[str, str]] = set()
        """Phase pods that were seen, by UID, and what was done to them."""

    async def run(self) -> None:
        while True:
            for breach in (*self._slots(), *self._actors(), *self._claims(), *self._starts(), *self._barrier()):
                if breach not in self._said:
                    self._said.add(breach)
                    self.broken.append(breach)
            await asyncio.sleep(PERIOD)

    def _slots(self) -> Iterator[str]:
        total = len(self._cluster.nodes)
        for (_, name), record in self._cluster.server.store.all(kinds.NODERUNTIMES):
            rollout = record.object.get("spec", {}).get("rollout", {})
            limit = _limit(rollout.get("maxUnavailable", 1), total)
            used = len(record.object.get("status", {}).get("inWork") or ())
            if used > limit:
                yield f"{name}: {used} nodes in work, {limit} allowed"

    def _barrier(self) -> Iterator[str]:
        """No phase pod is made or killed while containerd has been away for long enough that everybody knows."""
        for (_, name), record in self._cluster.server.store.all(kinds.PODS):
            meta = record.object["metadata"]
            if (meta.get("labels") or {}).get(names.COMPONENT_LABEL) != names.COMPONENT_PHASE:
                continue
            done = {"made": True, "killed": bool(meta.get("deletionGracePeriodSeconds"))}
            node = record.object["spec"]["nodeName"]
            away = self._cluster.nodes[node].daemon.away
            for what in (what for what, holds in done.items() if holds and (meta["uid"], what) not in self._touched):
                self._touched.add((meta["uid"], what))
                if away > KNOWN_AFTER:
                    yield f"{node}: phase pod {name} was {what} while containerd had been away for {away:.1f} s"

    def _actors(self) -> Iterator[str]:
        for name, node in self._cluster.nodes.items():
            pods = {uid for uid in _phase_pods_running(node)}
            if len(pods) > 1:
                yield f"{name}: {len(pods)} phase pods run at once: {', '.join(sorted(pods))}"

    def _claims(self) -> Iterator[str]:
        """A node in stage ready has a served handler, unless containerd is away or was restarted just now."""
        for (_, runtime), record in self._cluster.server.store.all(kinds.NODERUNTIMES):
            wanted = {handler["name"] for handler in record.object.get("spec", {}).get("handlers", ())}
            for name, node in self._cluster.nodes.items():
                labels = _node(self._cluster, name)["metadata"].get("labels") or {}
                ready = labels.get(names.stage_label(runtime)) == "ready"
                recent = node.daemon.starts and _now() - node.daemon.starts[-1].time < GRACE
                if ready and node.daemon.serving and not recent and not wanted <= set(node.daemon.loaded.handlers):
                    yield f"{name}: {runtime} is called ready, but CRI serves {node.daemon.loaded.handlers}"

    def _starts(self) -> Iterator[str]:
        for name, node in self._cluster.nodes.items():
            for start in node.daemon.starts:
                if start.error and start.initiator == "agent" and not start.outside:
                    yield f"{name}: the agent started containerd on a configuration that fails: {start.error}"


KNOWN_AFTER = 2.0
"""Seconds of an outage after which its agent has reported it, also to an API server that fails now and then."""
GRACE = 10.0
"""Seconds after a start of containerd in which a node may still be called what it was before."""


def _phase_pods_running(node: SimNode) -> Iterator[str]:
    for process in node.runtime.processes.values():
        sandbox = node.runtime.sandboxes.get(process.sandbox_id)
        if process.state is not ContainerState.RUNNING or sandbox is None:
            continue
        if sandbox.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE:
            yield sandbox.name


def _limit(value: object, total: int) -> int:
    """What cannot be read allows nothing."""
    if isinstance(value, str):
        return max(1, total * int(value[:-1]) // 100) if value.removesuffix("%").isdigit() else 0
    return value if isinstance(value, int) else 0


def _node(cluster: Cluster, name: str) -> Object:
    record = cluster.server.store.get(kinds.NODES, ("", name))
    return record.object if record is not None else {"metadata": {}}


def _now() -> float:
    return asyncio.get_running_loop().time()
