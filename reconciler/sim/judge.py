"""The judge: looks at the world itself (disks, shims, API objects, the daemons' own logs), never at our reports.

`World` is taken before the first loop; `left_behind` compares it with a later moment. What must
hold while a run goes on is in `sim.invariants`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.api import names
from reconciler.cri.api import ContainerState
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.config import MAIN
from reconciler.sim.kinds import Object
from reconciler.sim.node import CONFIG

LOOKED_AT = ("etc", "opt", "usr/local", "var/lib/runtime-reconciler")
"""Below a node's root: what an installer may touch."""
LOCK = "var/lib/runtime-reconciler/lock"
"""The lock file is never deleted (design section 6.7)."""
LEFT = (names.STATE_ANNOTATION_PREFIX, names.RETRY_ANNOTATION_PREFIX, names.SKIP_ANNOTATION_PREFIX)
"""Annotations of Nodes that are gone with the runtime they are for."""


FRESH = {MAIN.lstrip("/"): hashlib.sha256(CONFIG.encode()).hexdigest()}
"""The disk of a node that joined later."""


@dataclass(frozen=True)
class World:
    """How the nodes were before anything was done; one that is not in it was fresh."""

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
        then = before.labels.get(name, cluster.nodes[name].first_labels)
        for key in sorted(set(labels) | set(then)):
            if labels.get(key) != then.get(key):
                yield f"{name}: label {key} is {labels.get(key)!r}, it was {then.get(key)!r}"
        for key in sorted(meta.get("annotations") or {}):
            if key.startswith(LEFT):
                yield f"{name}: annotation {key} is left"


def _disks(cluster: Cluster, before: World) -> Iterator[str]:
    for name, node in cluster.nodes.items():
        now, then = disk(node.root), before.disks.get(name, FRESH)
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


def _node(cluster: Cluster, name: str) -> Object:
    record = cluster.server.store.get(kinds.NODES, ("", name))
    return record.object if record is not None else {"metadata": {}}
