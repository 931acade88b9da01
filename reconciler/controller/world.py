"""What the controller sees and remembers: the informers' stores, and what no store holds.

Everything remembered here can be lost at any moment: progress lives on the Nodes only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from reconciler.api import names
from reconciler.api.meta import ConfigMap, ControllerRevision, DaemonSet, Node, Pod, RuntimeClass, condition
from reconciler.api.node import NodeState, Problem, Report, decode_report, decode_state
from reconciler.api.noderuntime import NodeRuntime, RevisionData, revision_data, revision_hash, revision_name
from reconciler.api.overview import NodeRow
from reconciler.controller.times import Sightings
from reconciler.kube.store import Store
from reconciler.phases.decision import Wait
from reconciler.phases.facts import Goal, Stop
from reconciler.phases.rollout import View

NODE_INDEX = "node"


@dataclass(frozen=True)
class Outlook:
    """What the last look at one runtime on one node came to."""

    view: View
    wait: Wait
    state: NodeState | None
    counted: bool
    """Whether the node belongs to the NodeRuntime's total."""
    lost: bool = False
    """Whether CRI serves and does not have all handlers: it is to be repaired, when its turn comes."""
    goal: Goal = Goal("")
    """What it was to get to at that look."""

    @property
    def serves(self) -> bool:
        """Whether it counts as ready."""
        return self.view.done and self.view.node_ready and not self.lost


@dataclass(frozen=True)
class Stopping:
    """What is known of the switch that stops everything."""

    words: str = ""
    """Who has stopped everything, or why nobody can tell; empty while nothing is stopped."""
    found: ConfigMap | None = None
    spans: tuple[Stop, ...] = ()
    """When everything was stopped, the oldest first; the last one may last."""

    @property
    def told(self) -> str:
        """`words`, and how it ends."""
        if self.found is None:
            return f"{self.words}; see the rules of deploy/base/rbac.yaml" if self.words else ""
        return f"{self.words}; `kubectl reconciler resume` lifts it"


@dataclass
class World:
    """Stores of the informers, and short-lived memory beside them."""

    namespace: str
    nodes: Store[Node]
    pods: Store[Pod]
    runtimes: Store[NodeRuntime]
    revisions: Store[ControllerRevision]
    classes: Store[RuntimeClass]
    daemonsets: Store[DaemonSet] = field(default_factory=Store)
    installers: Problem | None = Problem("NotLooked")
    """Why DaemonSets of other installers cannot be told of; None once they can."""
    leading_since: datetime | None = None
    stopping: Stopping = Stopping()
    outlooks: dict[str, dict[str, Outlook]] = field(default_factory=dict)
    """By runtime, then by node."""
    rows: dict[str, dict[str, NodeRow]] = field(default_factory=dict)
    """By runtime, then by node: the same look in words, leftovers of NodeRuntimes that are gone included."""
    deselected_since: dict[tuple[str, str], datetime] = field(default_factory=dict)
    agent_lost: dict[str, datetime] = field(default_factory=dict)
    """Nodes without a ready agent, and since when."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """Runtimes that may not start on further nodes, and why."""
    refused: dict[str, dict[str, Problem]] = field(default_factory=dict)
    """By runtime, then by node: steps that the API server has refused; they are tried again."""
    blind: dict[str, str] = field(default_factory=dict)
    """Resources that we may not list or watch, by plural, and the API server's words."""
    seen: set[str] = field(default_factory=set)
    """Nodes looked at since we lead: until it is all of them, nobody can say how many are at work."""
    gone: set[str] = field(default_factory=set)
    """UIDs of pods whose deletion the API server has confirmed and the informer has not delivered yet."""
    ending: set[str] = field(default_factory=set)
    """UIDs of pods that we have asked to end and whose deletionTimestamp the informer has not delivered yet."""
    giving_back: dict[str, frozenset[str]] = field(default_factory=dict)
    """By runtime: nodes whose slots the status that is being written takes from them."""
    sightings: Sightings = field(default_factory=Sightings)
    """When we saw what Nodes and pods say of time; by name of the node, or UID of the pod."""
    _decoded: dict[str, RevisionData | None] = field(default_factory=dict)
    """By UID of a ControllerRevision, whose data cannot change; no more than the store holds."""

    def onlooker(self) -> World:
        """The same stores, with a memory of its own: for those who look and do not act."""
        return World(
            namespace=self.namespace,
            nodes=self.nodes,
            pods=self.pods,
            runtimes=self.runtimes,
            revisions=self.revisions,
            classes=self.classes,
            daemonsets=self.daemonsets,
        )

    def runtime(self, name: str) -> NodeRuntime | None:
        return self.runtimes.get(name)

    def revision(self, runtime: str, revision: str) -> RevisionData | None:
        """Data of a kept revision, None when nobody kept it or it cannot be read.

        A NodeRuntime that is being deleted keeps none anew: what its spec says holds where somebody deleted it.
        """
        kept = self.revisions.get(revision_name(runtime, revision), self.namespace)
        if kept is None:
            return self._going(runtime, revision)
        uid = kept.metadata.uid
        if uid not in self._decoded:
            living = {r.metadata.uid for r in self.revisions.list()}
            self._decoded = {u: data for u, data in self._decoded.items() if u in living}
            self._decoded[uid] = _decode(kept)
        return self._decoded[uid]

    def _going(self, runtime: str, revision: str) -> RevisionData | None:
        owner = self.runtimes.get(runtime)
        if owner is None or owner.metadata.deletion_timestamp is None:
            return None
        data = revision_data(owner.spec)
        return data if revision_hash(data) == revision else None

    def agent_missing(self, node: str) -> str:
        """Why there is no ready agent on `node`; empty when there is one."""
        why = "no agent pod on this node; see the agent DaemonSet"
        for pod in self.pods.by_index(NODE_INDEX, node):
            ours = pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_AGENT
            if not ours or pod.metadata.deletion_timestamp is not None:
                continue
            ready = condition(pod.status.conditions, "Ready")
            if ready is not None and ready.status == "True":
                return ""
            why = f"agent pod {pod.metadata.namespace}/{pod.metadata.name} is not Ready; see its log"
        return why

    def note_refusal(self, runtime: str, node: str, problem: Problem | None) -> bool:
        """Remember what the API server has refused, or (None) that it refuses nothing any more; whether that is new."""
        by_node = self.refused.setdefault(runtime, {})
        before = by_node.pop(node, None)
        if problem is not None:
            by_node[node] = problem
        if not by_node:
            del self.refused[runtime]
        return before != problem

    def phase_pods(self, node: str, runtime: str) -> Iterator[Pod]:
        """Phase pods of `runtime` on `node` that are not known to be gone."""
        return (pod for pod in self._phase_pods(node) if pod.metadata.labels.get(names.RUNTIME_LABEL) == runtime)

    def pods_elsewhere(self, node: str, runtime: str) -> bool:
        """Whether a phase pod of another runtime is on `node`: a payload that has said it is done may still run."""
        return any(pod.metadata.labels.get(names.RUNTIME_LABEL) != runtime for pod in self._phase_pods(node))

    def _phase_pods(self, node: str) -> Iterator[Pod]:
        for pod in self.pods.by_index(NODE_INDEX, node):
            phase = pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
            if phase and pod.metadata.uid not in self.gone:
                yield pod

    def forget_row(self, runtime: str, node: str) -> None:
        by_node = self.rows.get(runtime, {})
        by_node.pop(node, None)
        if not by_node:
            self.rows.pop(runtime, None)

    def forget_others(self, node: str, runtimes: Collection[str]) -> list[str]:
        """Only `runtimes` have to do with `node` now; returns those that had an outlook on it until now."""
        for runtime in [name for name, by_node in self.rows.items() if node in by_node and name not in runtimes]:
            self.forget_row(runtime, node)
        found = [name for name, by_node in self.outlooks.items() if node in by_node and name not in runtimes]
        for name in found:
            del self.outlooks[name][node]
        return found

    def forget_pod(self, uid: str) -> None:
        """The informer has delivered the end of a pod."""
        self.sightings.forget(uid)
        self.gone.discard(uid)
        self.ending.discard(uid)

    def forget_node(self, name: str) -> list[str]:
        """A Node is gone; returns the runtimes that had an outlook on it."""
        self.agent_lost.pop(name, None)
        self.sightings.forget(name)
        for runtime in [*self.refused]:
            self.note_refusal(runtime, name, None)
        for runtime in [*self.rows]:
            self.forget_row(runtime, name)
        for key in [k for k in self.deselected_since if k[1] == name]:
            del self.deselected_since[key]
        return [runtime for runtime, by_node in self.outlooks.items() if by_node.pop(name, None) is not None]


def _decode(kept: ControllerRevision) -> RevisionData | None:
    try:
        return msgspec.json.decode(bytes(kept.data), type=RevisionData)
    except msgspec.MsgspecError:
        return None


def states(node: Node) -> dict[str, NodeState | None]:
    """By runtime: the state annotations of `node`; None where one cannot be read."""
    found: dict[str, NodeState | None] = {}
    for key, text in node.metadata.annotations.items():
        if key.startswith(names.STATE_ANNOTATION_PREFIX):
            runtime = key.removeprefix(names.STATE_ANNOTATION_PREFIX)
            try:
                found[runtime] = decode_state(text)
            except msgspec.MsgspecError:
                found[runtime] = None
    return found


def report_in(node: Node) -> Report | None:
    """The agent's report; None where there is none or it cannot be read."""
    text = node.metadata.annotations.get(names.REPORT_ANNOTATION, "")
    try:
        return decode_report(text) if text else None
    except msgspec.MsgspecError:
        return None


def report_of(node: Node) -> Report:
    """The agent's report; an empty one where there is none or it cannot be read."""
    return report_in(node) or Report()
