"""What must hold at every write, looked at as it is made: at the truth of the store and of the machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from reconciler.api import names
from reconciler.api.node import REST, NodeState, decode_state
from reconciler.cri.api import ContainerState
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.node import SimNode
from reconciler.sim.store import Event


class Eyes:
    """`told(kind, event)` and `changes(node)` give each breach to `breach`."""

    def __init__(self, cluster: Cluster, breach: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._breach = breach

    def told(self, kind: Kind, event: Event) -> None:
        """A version was stored."""
        for breach in self._breaches(kind, event):
            self._breach(breach)

    def changes(self, node: SimNode) -> None:
        """The agent of `node` is about to change containerd's configuration."""
        for uid in sorted(_running(node)):
            self._breach(f"{node.name}: the agent changes the configuration while phase pod {uid} runs")

    def _breaches(self, kind: Kind, event: Event) -> Iterator[str]:
        if kind == kinds.NODERUNTIMES:
            yield from self._ended(event) if event.new is None else self._slots(event.new.object)
        if kind == kinds.PODS and event.old is None and event.new is not None:
            yield from self._second_actor(event.new.object)
        if kind == kinds.NODES and event.new is not None:
            yield from self._stages(event.key[1], event.new.object)

    def _ended(self, event: Event) -> Iterator[str]:
        """The finalizer outlives the last touched node."""
        runtime = event.key[1]
        for name, node in self._cluster.nodes.items():
            if runtime in _states(self._node(name)):
                yield f"{runtime} is gone, and {name} carries its state"
            journal = node.root / "var/lib/runtime-reconciler/journal.json"
            if journal.exists() and f'"{runtime}"' in journal.read_text():
                yield f"{runtime} is gone, and the journal of {name} holds it"
        for (_, pod), record in self._cluster.server.store.all(kinds.PODS):
            if _labels(record.object).get(names.RUNTIME_LABEL) == runtime:
                yield f"{runtime} is gone, and its pod {pod} is there"

    def _slots(self, runtime: Object) -> Iterator[str]:
        name = runtime["metadata"]["name"]
        in_work = (runtime.get("status") or {}).get("inWork") or ()
        allowed = _limit(runtime["spec"].get("rollout", {}).get("maxUnavailable", 1), len(self._cluster.nodes))
        if len(in_work) > allowed:
            yield f"{name}: slots of {', '.join(in_work)}, {allowed} allowed"

    def _stages(self, name: str, node: Object) -> Iterator[str]:
        """One runtime is at work on a node, and no more nodes than may be; nothing is given up here."""
        working = [runtime for runtime, state in _states(node).items() if state.stage not in REST]
        if len(working) > 1:
            yield f"{name}: {' and '.join(working)} are at work at once"
        for runtime, state in _states(node).items():
            if state.stage == "failed":
                yield f"{name}: {runtime} has failed: {state.error}"
            record = self._cluster.server.store.get(kinds.NODERUNTIMES, ("", runtime))
            if record is None or state.stage in REST:
                continue
            asked = record.object["spec"].get("rollout", {}).get("maxUnavailable", 1)
            at_work = [n for n in self._cluster.nodes if self._works(n, runtime)]
            if len(at_work) > _limit(asked, len(self._cluster.nodes)):
                yield f"{runtime}: at work on {', '.join(at_work)} at once"

    def _works(self, node: str, runtime: str) -> bool:
        state = _states(self._node(node)).get(runtime)
        return state is not None and state.stage not in REST

    def _second_actor(self, pod: Object) -> Iterator[str]:
        """A phase pod is made on a node on which no other is, for the stage that its node is in."""
        labels, name = _labels(pod), pod["metadata"]["name"]
        if labels.get(names.COMPONENT_LABEL) != names.COMPONENT_PHASE:
            return
        node = pod["spec"]["nodeName"]
        for (_, other), record in self._cluster.server.store.all(kinds.PODS):
            same = record.object["spec"].get("nodeName") == node and other != name
            if same and _labels(record.object).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE:
                yield f"{node}: pod {name} is made while {other} is there"
        for uid in sorted(_running(self._cluster.nodes[node])):
            yield f"{node}: pod {name} is made while {uid} runs"
        state = _states(self._node(node)).get(labels[names.RUNTIME_LABEL])
        if state is None or state.stage != labels[names.PHASE_LABEL]:
            yield f"{node}: pod {name} is made in stage {None if state is None else state.stage}"

    def _node(self, name: str) -> Object:
        record = self._cluster.server.store.get(kinds.NODES, ("", name))
        return {"metadata": {}} if record is None else record.object


def _limit(value: int | str, total: int) -> int:
    """Nodes that `maxUnavailable` allows."""
    return value if isinstance(value, int) else max(1, total * int(value[:-1]) // 100)


def _labels(obj: Object) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("labels") or {}
    return found


def _states(node: Object) -> dict[str, NodeState]:
    prefix = names.STATE_ANNOTATION_PREFIX
    there: dict[str, Any] = node["metadata"].get("annotations") or {}
    return {key.removeprefix(prefix): decode_state(text) for key, text in there.items() if key.startswith(prefix)}


def _running(node: SimNode) -> Iterator[str]:
    """Phase pods of which a container runs."""
    for process in node.runtime.processes.values():
        sandbox = node.runtime.sandboxes.get(process.sandbox_id)
        phase = sandbox is not None and sandbox.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
        if phase and sandbox is not None and process.state is not ContainerState.EXITED:
            yield sandbox.name
