"""What happened in a run, a line for each thing that a reader has to know; and the figures of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.store import Event
from tests.soak.outcome import Outcome


class Timeline:
    """Collects while the cluster runs; `end` writes the figures into the outcome."""

    def __init__(self, cluster: Cluster, outcome: Outcome) -> None:
        self._cluster = cluster
        self._outcome = outcome
        self._starts: dict[str, int] = {}
        cluster.server.store.written.append(self._seen)

    def fault(self, line: str) -> None:
        """`NAME: what was done`."""
        self._outcome.faults[line.partition(":")[0]] += 1
        self.say(f"! {line}")

    def say(self, line: str) -> None:
        self._catch_up()
        self._outcome.timeline.append(_line(asyncio.get_running_loop().time(), line))

    def end(self, broken: Iterable[str]) -> None:
        """`broken`: lines of what should not have been."""
        self._catch_up()
        cluster, outcome = self._cluster, self._outcome
        outcome.timeline.extend(broken)
        outcome.timeline.sort(key=lambda line: float(line[:10]))
        outcome.seconds = asyncio.get_running_loop().time()
        nodes = cluster.nodes.values()
        outcome.restarts = sum(1 for node in nodes for start in node.daemon.starts if start.initiator != "boot")
        outcome.digest = _digest(cluster)

    def _seen(self, kind: Kind, event: Event) -> None:
        if kind == kinds.NODES:
            for line in _of_node(event):
                self._outcome.transitions += 1
                self.say(line)
        elif kind == kinds.PODS and _is_phase(event.last.object):
            if event.old is None or event.new is None:
                self.say(f"pod {event.key[1]} {'made' if event.old is None else 'gone'}")
        elif kind == kinds.NODERUNTIMES:
            for line in _of_runtime(event):
                self.say(line)

    def _catch_up(self) -> None:
        """Starts of containerd tell their own time."""
        for name, node in self._cluster.nodes.items():
            known = self._starts.get(name, 0)
            for start in node.daemon.starts[known:]:
                error = f": {start.error}" if start.error else ""
                self._outcome.timeline.append(
                    _line(start.time, f"{name}: containerd started by {start.initiator}{error}")
                )
            self._starts[name] = len(node.daemon.starts)


def _of_node(event: Event) -> Iterator[str]:
    before, after = _states(event.old.object if event.old else {}), _states(event.new.object if event.new else {})
    for runtime in sorted(set(before) | set(after)):
        old, new = before.get(runtime, {}), after.get(runtime, {})
        told = [
            f"{key} {old.get(key)} -> {new.get(key)}"
            for key in ("stage", "target", "attempt")
            if old.get(key) != new.get(key)
        ]
        if told:
            error = (new.get("error") or {}).get("reason", "")
            yield f"{event.key[1]}: {runtime}: {', '.join(told)}{f' ({error})' if error else ''}"


def _of_runtime(event: Event) -> Iterator[str]:
    name = event.key[1]
    if event.old is None or event.new is None:
        yield f"NodeRuntime {name} {'made' if event.old is None else 'gone'}"
        return
    old, new = event.old.object, event.new.object
    if old["metadata"].get("deletionTimestamp") != new["metadata"].get("deletionTimestamp"):
        yield f"NodeRuntime {name} is being deleted"
    if old.get("spec") != new.get("spec"):
        yield f"NodeRuntime {name} edited"
    before, after = ((obj.get("status") or {}).get("inWork") or [] for obj in (old, new))
    if before != after:
        yield f"NodeRuntime {name}: slots {before} -> {after}"


def _states(node: Object) -> dict[str, dict[str, Any]]:
    """Runtime → what the node's annotation says of it."""
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    return {
        key.removeprefix(names.STATE_ANNOTATION_PREFIX): _decoded(annotations[key])
        for key in sorted(annotations)
        if key.startswith(names.STATE_ANNOTATION_PREFIX)
    }


def _decoded(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {"stage": "unreadable"}


def states(cluster: Cluster, node: str) -> dict[str, dict[str, Any]]:
    """Runtime → what the node's annotation says of it."""
    record = cluster.server.store.get(kinds.NODES, ("", node))
    return {} if record is None else _states(record.object)


def _is_phase(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE


def _line(time: float, text: str) -> str:
    return f"{time:10.3f}  {text}"


def _digest(cluster: Cluster) -> str:
    found = hashlib.sha256()
    for a in cluster.server.audit:
        found.update(f"{a.time:.6f} {a.user} {a.method} {a.target.kind.plural}/{a.target.name} {a.status}\n".encode())
    for node in cluster.nodes.values():
        for start in node.daemon.starts:
            found.update(f"{start.time:.6f} {node.name} {start.initiator} {start.error}\n".encode())
    return found.hexdigest()[:16]
