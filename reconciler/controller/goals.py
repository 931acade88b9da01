"""Where each node should be, and the facts that `decide` is asked with. Reads stores only; no IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from reconciler.api import names
from reconciler.api.meta import Condition, LabelSelector, Node, condition
from reconciler.api.node import REST, NodeState, Report, Stage
from reconciler.api.noderuntime import (
    NodeRuntime,
    RevisionData,
    Strategy,
    UnreadableNodeRuntime,
    WhenInUse,
    WrittenBy,
    revision_data,
    revision_hash,
)
from reconciler.controller.pods import facts_of, phase_of
from reconciler.controller.world import NODE_INDEX, World, report_of, states
from reconciler.kube.selectors import matches
from reconciler.phases.facts import Facts, Goal, PhasePlan, Plan, PodFacts
from reconciler.phases.questions import INSTALL_PATH, present

DESELECT_DELAY = 60.0
"""Seconds that a node must have stayed deselected before it is uninstalled (design section 4)."""
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


def plan_of(data: RevisionData) -> Plan:
    """What decisions need of a revision."""
    phases = {}
    for stage in (Stage.PRE_INSTALL, Stage.INSTALL, Stage.UNINSTALL, Stage.POST_UNINSTALL):
        phase = phase_of(data, stage)
        if phase is not None:
            label = phase.completion.node_label
            phases[stage] = PhasePlan(
                timeout=float(phase.timeout_seconds),
                grace=phase.termination_grace_period_seconds,
                done_label=None if label is None else (label.key, label.value),
            )
    written = frozenset(h.name for h in data.handlers if h.written_by is WrittenBy.AGENT)
    return Plan(
        phases=phases,
        handlers=frozenset(h.name for h in data.handlers),
        written=written,
        configures=bool(written) or bool(data.snapshotters),
    )


def selects(runtime: NodeRuntime, node: Node) -> bool:
    """A selector that cannot be read matches nothing: `problems` tells of it."""
    if isinstance(runtime, UnreadableNodeRuntime):
        return False
    return _in_group(runtime.spec.node_selector, node)


def takes_part(runtime: NodeRuntime, node: Node) -> bool:
    """Whether `node` is one of those that the runtime is for."""
    return selects(runtime, node) and not set_aside(node)


def set_aside(node: Node) -> str:
    """Why a node cannot take part at all; empty when it can."""
    info = node.status.node_info
    if node.metadata.labels.get("type") == "virtual-kubelet":
        return "a virtual node has no containerd"
    if info.operating_system not in ("", "linux"):
        return f"operating system {info.operating_system} is not supported"
    runtime = info.container_runtime_version
    if runtime and not runtime.startswith("containerd://"):
        return f"container runtime {runtime.split(':')[0]} is not containerd"
    return ""


def node_ready(node: Node) -> tuple[bool, datetime | None]:
    """Whether the node is Ready, and since when."""
    ready = condition(node.status.conditions, "Ready")
    if ready is None:
        return False, None
    return ready.status == "True", ready.last_transition_time


def runtimes_of(world: World, node: Node) -> list[str]:
    """Every runtime that has, or should have, something to do with `node`."""
    found = set(states(node)) | set(report_of(node).journal)
    found.update(
        key.removeprefix(names.STAGE_LABEL_PREFIX)
        for key in node.metadata.labels
        if key.startswith(names.STAGE_LABEL_PREFIX)
    )
    found.update(runtime.metadata.name for runtime in world.runtimes.list() if selects(runtime, node))
    found.update(
        pod.metadata.labels.get(names.RUNTIME_LABEL, "")
        for pod in world.pods.by_index(NODE_INDEX, node.metadata.name)
        if pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
    )
    return sorted(found - {""})


def goal_of(world: World, node: Node, name: str, state: NodeState | None, now: datetime) -> Goal:
    """Where `node` should be with runtime `name`."""
    runtime = world.runtime(name)
    key = (name, node.metadata.name)
    if runtime is None:
        world.deselected_since.pop(key, None)
        return Goal(state.uid if state else "")
    uid = runtime.metadata.uid
    if state is not None and state.uid != uid:
        return Goal(uid)
    kept = Goal(uid, "" if state is None else _kept(state))
    if runtime.metadata.deletion_timestamp is not None:
        goal = Goal(uid)
    elif name in world.problems or isinstance(runtime, UnreadableNodeRuntime):
        goal = kept
    elif selects(runtime, node):
        world.deselected_since.pop(key, None)
        revision = revision_hash(revision_data(runtime.spec))
        goal = Goal(uid, revision) if world.revision(name, revision) is not None else kept
    elif state is None:
        goal = Goal(uid)
    else:
        since = world.deselected_since.setdefault(key, now)
        due = now - since >= timedelta(seconds=DESELECT_DELAY)
        goal = Goal(uid) if due and not _leaves_everyone(world, runtime) else kept
    if runtime.spec.paused and state is not None and state.stage not in REST:
        return kept if state.stage in INSTALL_PATH else goal
    return goal


def _kept(state: NodeState) -> str:
    """The revision by whose goal a node stays where it is; that one failed here is not forgotten by that."""
    return state.failed if state.failed and state.stage in REST else state.target


def _leaves_everyone(world: World, runtime: NodeRuntime) -> bool:
    """The selector matches none of the nodes that have the runtime, and nobody has confirmed that."""
    if runtime.metadata.annotations.get(names.CONFIRM_DESELECT_ANNOTATION) == "true":
        return False
    carriers = [
        n for n in world.nodes.list() if names.state_annotation(runtime.metadata.name) in n.metadata.annotations
    ]
    return len(carriers) > 1 and not any(selects(runtime, n) for n in carriers)


def at_work_elsewhere(node: Node, runtime: str) -> list[str]:
    """Other runtimes at work on this node: containerd is one, so there should be one at most. One whose state cannot be
    read may be in the middle of anything."""
    return [
        name for name, state in states(node).items() if name != runtime and (state is None or state.stage not in REST)
    ]


def labels_true(node: Node, runtime: str, state: NodeState | None, present: bool) -> bool:
    """Whether the node's labels say what its state says."""
    labels = node.metadata.labels
    stage = None if state is None else str(state.stage)
    there = names.PRESENT_LABEL_VALUE if present else None
    return labels.get(names.stage_label(runtime)) == stage and labels.get(names.present_label(runtime)) == there


def facts_for(
    world: World,
    node: Node,
    name: str,
    state: NodeState | None,
    now: datetime,
    *,
    in_use: Mapping[str, tuple[str, ...]] | None,
) -> Facts:
    """Everything `decide` may know of runtime `name` on `node`."""
    runtime = world.runtime(name)
    report = report_of(node)
    ready, ready_since = node_ready(node)
    where, seen = node.metadata.name, world.sightings
    if state is not None and state.since > now:  # written by a clock that was ahead of ours
        state = msgspec.structs.replace(state, since=seen.of(where, name, state.since, now))
    missing = world.agent_missing(node.metadata.name)
    agent = missing == ""
    lost = _agent_lost(world, node.metadata.name, agent, now)
    serving = condition(node.status.conditions, names.SERVING_CONDITION)
    booted = rebooted(node, report)
    contested = condition(node.status.conditions, names.CONTESTED_CONDITION)
    plans = {r: _plan(world, name, r) for r in _revisions(world, node, name, state)}
    ours = runtime is not None and (state is None or state.uid == runtime.metadata.uid)
    label = _done_label(plans, state)
    return Facts(
        goal=goal_of(world, node, name, state, now),
        state=state,
        plans={r: p for r, p in plans.items() if p is not None},
        owned=ours,
        pods=_pod_facts(world, node, name, report.ended, now),
        answer=report.work.get(name),
        served=frozenset(report.handlers),
        serving=serving is not None and serving.status == "True" and agent and ready and not booted,
        serving_since=None if serving is None else _when(world, where, "serving", serving.last_transition_time, now),
        serving_reason=_serving_reason(serving, booted),
        contested=contested.message if contested is not None and contested.status == "True" else "",
        node_ready=ready,
        node_ready_since=_when(world, where, "ready", ready_since, now),
        agent_ready=agent,
        agent_lost=lost,
        agent_reason=missing,
        set_aside=set_aside(node) if state is None else "",
        machine=node.status.node_info.machine_id,
        dirty=report.journal.get(name, ""),
        slot=runtime is None or _may_use_slot(world, runtime, node, state),
        free=not at_work_elsewhere(node, name) and not world.pods_elsewhere(node.metadata.name, name),
        labels_true=labels_true(node, name, state, present(state)),
        done_label=label is not None and node.metadata.labels.get(label[0]) == label[1],
        tainted=ours and runtime is not None and _tainted(runtime, node),
        in_use=in_use,
        retry=names.retry_annotation(name) in node.metadata.annotations,
        force=runtime is not None and runtime.spec.uninstall.when_in_use is WhenInUse.FORCE,
        reinstall=runtime is not None and runtime.spec.upgrade.strategy is Strategy.REINSTALL,
        bake=0.0 if runtime is None else float(runtime.spec.rollout.bake_seconds),
        leading_since=world.leading_since,
        stopped=world.stopping.words,
        stops=world.stopping.spans,
    )


def holds_slot(world: World, runtime: NodeRuntime, node: Node) -> bool:
    """Whether `node` holds a slot of `runtime` that is not on its way back."""
    name, where = runtime.metadata.name, node.metadata.name
    return where in runtime.status.in_work and where not in world.giving_back.get(name, ())


def _may_use_slot(world: World, runtime: NodeRuntime, node: Node, state: NodeState | None) -> bool:
    """At rest it must have asked for the slot at the last look: one that is left of work that has ended is about to be
    given back, and nothing but that look keeps it from being."""
    outlook = world.outlooks.get(runtime.metadata.name, {}).get(node.metadata.name)
    resting = state is None or state.stage in REST
    asked = outlook is not None and (outlook.view.wants_slot or not outlook.view.at_rest)
    return holds_slot(world, runtime, node) and (asked or not resting)


def rebooted(node: Node, report: Report) -> bool:
    """Whether kubelet has told of a boot that the agent has not reported from yet: both read the kernel's boot id."""
    told, booted = report.boot.strip(), node.status.node_info.boot_id
    return told != "" and booted not in ("", told)


def _serving_reason(serving: Condition | None, booted: bool) -> str:
    if serving is None:
        return "no report of the agent"
    if booted:
        return "the agent has not reported since the node was booted"
    return f"{serving.reason}: {serving.message}"


def _agent_lost(world: World, node: str, ready: bool, now: datetime) -> datetime | None:
    if ready:
        world.agent_lost.pop(node, None)
        return None
    return world.agent_lost.setdefault(node, now)


def rank(runtime: NodeRuntime, node: Node, own_node: str) -> int:
    """Place of `node` in a rollout: the groups asked for, then the rest, then control planes, then our own node."""
    for place, selector in enumerate(runtime.spec.rollout.order):
        if _in_group(selector, node):
            return place
    groups = len(runtime.spec.rollout.order)
    if node.metadata.name == own_node:
        return groups + 2
    return groups + (CONTROL_PLANE_LABEL in node.metadata.labels)


def _in_group(selector: LabelSelector, node: Node) -> bool:
    try:
        return matches(selector, node.metadata.labels)
    except ValueError:  # an operator that is none: `problems` tells of it
        return False


def _plan(world: World, name: str, revision: str) -> Plan | None:
    data = world.revision(name, revision)
    return None if data is None else plan_of(data)


def _revisions(world: World, node: Node, name: str, state: NodeState | None) -> set[str]:
    runtime = world.runtime(name)
    wanted = set() if runtime is None else {revision_hash(revision_data(runtime.spec))}
    if state is not None:
        wanted |= {state.installed, state.target}
    wanted |= {
        p.metadata.annotations.get(names.REVISION_ANNOTATION, "") for p in world.phase_pods(node.metadata.name, name)
    }
    return wanted - {""}


def _when(world: World, node: str, what: str, told: datetime | None, now: datetime) -> datetime | None:
    return None if told is None else world.sightings.of(node, what, told, now)


def _pod_facts(world: World, node: Node, name: str, ended: tuple[str, ...], now: datetime) -> tuple[PodFacts, ...]:
    found = (
        facts_of(pod, ended=pod.metadata.uid in ended, asked=pod.metadata.uid in world.ending)
        for pod in world.phase_pods(node.metadata.name, name)
    )
    return tuple(
        replace(facts, created=world.sightings.of(facts.uid, "created", facts.created, now))
        for facts in found
        if facts is not None
    )


def _done_label(plans: dict[str, Plan | None], state: NodeState | None) -> tuple[str, str] | None:
    plan = None if state is None else plans.get(state.target)
    phase = None if plan is None or state is None else plan.phases.get(state.stage)
    return None if phase is None else phase.done_label


def _tainted(runtime: NodeRuntime, node: Node) -> bool:
    ours = {(t.key, t.effect) for t in runtime.spec.startup_taints}
    return any((t.key, t.effect) in ours for t in node.spec.taints)
