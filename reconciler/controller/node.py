"""The shell around `decide` for one node: gather facts, ask, carry out, until there is only waiting left."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.api.meta import Node
from reconciler.api.node import REST, NodeState, Problem, Stage, encode
from reconciler.api.noderuntime import NodeRuntime
from reconciler.controller import goals, outlooks, pods, problems
from reconciler.controller.stopping import Held
from reconciler.controller.telemetry import Telemetry
from reconciler.controller.world import World, states
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from reconciler.kube.resources import NODES, PODS, RUNTIMECLASSES
from reconciler.kube.workers import After, Done, Result
from reconciler.phases.decide import decide
from reconciler.phases.decision import AskUse, EndPod, MakePod, Move, Wait
from reconciler.phases.facts import Facts
from reconciler.phases.questions import present
from reconciler.phases.stop import begins

log = logging.getLogger(__name__)

MAX_STEPS = 16
"""Steps of one runtime on one node in one go; more than the longest chain of skipped stages."""
REFUSALS = (400, 403, 422)
"""Answers that say what is wrong with the request itself, or with our rights."""
LIVE_GAP = 0.3
"""Seconds before a look at the live state is repeated when it was not as the stores say."""


class Stale(Exception):
    """The live state is not the one that the decision was made on; look again."""


class NodeReconciler:
    """Reconciles one Node key. Raises ApiError and TransportError: the queue backs off."""

    def __init__(
        self,
        world: World,
        client: Client,
        *,
        starter: Client,
        confirm: Callable[[], Awaitable[None]],
        clock: Clock,
        telemetry: Telemetry,
        changed: Callable[[str], None],
        own_node: str,
    ) -> None:
        """`changed(runtime)` is called when what the rollout sees of a node has changed.

        `starter` sends the writes by which something begins, right after `confirm()` has not raised Held.
        """
        self._world = world
        self._client = client
        self._starter = starter
        self._confirm_unstopped = confirm
        self._clock = clock
        self._telemetry = telemetry
        self._changed = changed
        self._own_node = own_node

    async def reconcile(self, name: str) -> Result:
        try:
            return await self._reconcile(name)
        finally:
            if name not in self._world.seen and self._world.nodes.get(name) is not None:
                self._world.seen.add(name)
                for runtime in self._world.runtimes.list():
                    self._changed(runtime.metadata.name)

    async def _reconcile(self, name: str) -> Result:
        node = self._world.nodes.get(name)
        if node is None:
            for runtime in self._world.forget_node(name):
                self._changed(runtime)
            return Done()
        waits: list[float | None] = []
        failed: ApiError | None = None
        runtimes = goals.runtimes_of(self._world, node)
        for runtime in self._world.forget_others(name, runtimes):
            self._changed(runtime)
        # what is at work goes first, so that a runtime at rest sees the node taken
        for runtime in sorted(runtimes, key=lambda r: (_rests(node, r), r)):
            try:
                waits.append(await self._drive(name, runtime))
            except (Conflict, Stale, Held):
                waits.append(LIVE_GAP)
            except ApiError as error:
                if error.status not in REFUSALS:
                    raise
                failed = error
                self._refused(name, runtime, error)
            else:
                self._accepted(name, runtime)
        if failed is not None:
            raise failed
        delays = [w for w in waits if w is not None]
        return After(min(delays)) if delays else Done()

    def _refused(self, node: str, runtime: str, error: ApiError) -> None:
        """Told on the NodeRuntime; the queue tries again, ever more slowly."""
        if isinstance(error, Forbidden):
            problem = problems.forbidden(error.message)
            if problem.reason == problems.FORBIDDEN:
                self._telemetry.forbidden("node")
        else:
            problem = Problem("StepRefused", error.message)
        if self._world.note_refusal(runtime, node, problem):
            self._changed(runtime)

    def _accepted(self, node: str, runtime: str) -> None:
        if runtime in self._world.refused and self._world.note_refusal(runtime, node, None):
            self._changed(runtime)

    async def _drive(self, name: str, runtime: str) -> float | None:
        """Steps of one runtime until it waits; returns seconds until it must be looked at again, if any."""
        in_use: dict[str, tuple[str, ...]] | None = None
        for _ in range(MAX_STEPS):
            node = self._world.nodes.get(name)
            if node is None:
                return None
            found = states(node)
            if runtime in found and found[runtime] is None:
                self._telemetry.unreadable(name, runtime)
                if outlooks.unreadable(self._world, node, runtime):
                    self._changed(runtime)
                return None
            state = found.get(runtime)
            now = self._clock.now()
            facts = goals.facts_for(self._world, node, runtime, state, now, in_use=in_use)
            decision = decide(facts, now)
            if not isinstance(decision, Wait):
                outlooks.step(self._world, node, runtime, facts, decision, own_node=self._own_node)
            match decision:
                case Wait():
                    self._look(node, runtime, facts, decision, now)
                    if decision.wants_slot and self._holds_slot(node, runtime):
                        return LIVE_GAP  # nobody will tell: it holds the slot that it has just asked for
                    dues = [d for d in (decision.until, self._deselect_due(runtime, name)) if d is not None]
                    return max((min(dues) - now).total_seconds(), 0.01) if dues else None
                case AskUse():
                    in_use = await users(self._client, self._world, node, runtime, state)
                    continue
                case Move():
                    await self._move(node, runtime, state, decision, await self._writer(begins(state, decision)))
                case MakePod(wanted):
                    await self._make(node, runtime, wanted, state)
                case EndPod(uid, _, grace):
                    await self._end(node, runtime, uid, grace, await self._writer(begins(state, decision)))
            in_use = None
        return LIVE_GAP

    def _holds_slot(self, node: Node, runtime: str) -> bool:
        owner = self._world.runtime(runtime)
        return owner is not None and goals.holds_slot(self._world, owner, node)

    def _deselect_due(self, runtime: str, name: str) -> datetime | None:
        """When a deselected node's time to come back is over; None when it is over already or does not run."""
        since = self._world.deselected_since.get((runtime, name))
        due = None if since is None else since + timedelta(seconds=goals.DESELECT_DELAY)
        return due if due is not None and due > self._clock.now() else None

    # --- carrying out ---

    async def _writer(self, begins: bool) -> Client:
        """Who sends the next write. Raises Held when something would begin although everything is stopped."""
        if not begins:
            return self._client
        await self._confirm_unstopped()
        return self._starter

    async def _move(self, node: Node, runtime: str, state: NodeState | None, move: Move, writer: Client) -> None:
        started = self._clock.monotonic()
        body = patch_of(node, runtime, move, self._world.runtime(runtime))
        answer = await writer.patch(NODES, node.metadata.name, body, field_manager=names.FIELD_MANAGER)
        self._world.nodes.apply_write(answer)
        self._telemetry.moved(node.metadata.name, runtime, state, move, self._clock.now())
        self._telemetry.patched(self._clock.monotonic() - started)

    async def _make(self, node: Node, runtime: str, state: NodeState, written: NodeState | None) -> None:
        """Make the pod of `state` after a look past the caches: nothing else of ours is there, `written` stands."""
        data = self._world.revision(runtime, state.target)
        if data is None:
            raise Stale
        body = pods.build(runtime, node.metadata.name, self._world.namespace, state, data)
        await self._confirm(node, runtime, written, body["metadata"]["name"])
        writer = await self._writer(True)
        self._still_serving(node, runtime, written)
        try:
            made = await writer.create(PODS, body, self._world.namespace)
        except AlreadyExists:
            made = await self._client.get(PODS, body["metadata"]["name"], self._world.namespace)
        self._world.pods.apply_write(made)

    async def _confirm(self, node: Node, runtime: str, written: NodeState | None, own: str) -> None:
        live = await self._client.get(NODES, node.metadata.name)
        self._world.nodes.apply_write(live)
        if states(live).get(runtime) != written:
            raise Stale
        selector = f"{names.NODE_LABEL}={pods.node_hash(node.metadata.name)},{names.RUNTIME_LABEL}={runtime}"
        there, _ = await self._client.list(PODS, self._world.namespace, label_selector=selector)
        if any(pod.metadata.name != own for pod in there):
            raise Stale

    def _still_serving(self, node: Node, runtime: str, state: NodeState | None) -> None:
        """Raises Stale when containerd has gone away, as far as is known by now, since the decision was made."""
        known = self._world.nodes.get(node.metadata.name)
        if (
            known is None
            or not goals.facts_for(self._world, known, runtime, state, self._clock.now(), in_use=None).serving
        ):
            raise Stale

    async def _end(self, node: Node, runtime: str, uid: str, grace: int, writer: Client) -> None:
        pod = next((p for p in self._world.phase_pods(node.metadata.name, runtime) if p.metadata.uid == uid), None)
        if pod is None:
            return
        meta = pod.metadata
        if grace > 0:
            self._still_serving(node, runtime, states(node).get(runtime))
        try:
            await writer.delete(PODS, meta.name, meta.namespace, uid=uid, grace_seconds=grace)
        except (NotFound, Conflict):  # gone, or the name belongs to another pod by now
            self._world.gone.add(uid)
        else:
            (self._world.gone if grace == 0 else self._world.ending).add(uid)

    # --- what the rollout sees ---

    def _look(self, node: Node, runtime: str, facts: Facts, wait: Wait, now: datetime) -> None:
        before, after = outlooks.note(self._world, node, runtime, facts, wait, now, own_node=self._own_node)
        if wait.stuck is not None and (before is None or before.wait.stuck is None):
            self._telemetry.stuck(node.metadata.name, runtime, facts.state, wait.stuck)
        if before != after:
            self._changed(runtime)


async def users(
    client: Client, world: World, node: Node, runtime: str, state: NodeState | None
) -> dict[str, tuple[str, ...]]:
    """By handler of ours: `namespace/name` of the pods on `node`, Terminating ones included, that use it; asked live.

    Raises ApiError and TransportError.
    """
    data = None if state is None else world.revision(runtime, state.installed or state.target)
    handlers = set() if data is None else {h.name for h in data.handlers}
    classes, _ = await client.list(RUNTIMECLASSES)
    ours = {c.metadata.name: c.handler for c in classes if c.handler in handlers}
    there, _ = await client.list(PODS, field_selector=f"spec.nodeName={node.metadata.name}")
    found: dict[str, list[str]] = {}
    for pod in there:
        handler = ours.get(pod.spec.runtime_class_name or "")
        if handler is not None and pod.status.phase not in ("Succeeded", "Failed"):
            found.setdefault(handler, []).append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return {handler: tuple(sorted(names)) for handler, names in found.items()}


def patch_of(node: Node, runtime: str, move: Move, owner: NodeRuntime | None) -> dict[str, Any]:
    """The one merge patch of a transition, fenced by the node's resourceVersion."""
    state = move.state
    gone = state is None or state.stage is Stage.ABSENT
    labels: dict[str, str | None] = {
        names.stage_label(runtime): None if gone or state is None else str(state.stage),
        names.present_label(runtime): names.PRESENT_LABEL_VALUE if present(state) else None,
    }
    labels.update(dict.fromkeys(move.clear_labels))
    annotations: dict[str, str | None] = {
        names.state_annotation(runtime): None if gone or state is None else encode(state)
    }
    if move.clear_retry or gone:
        annotations[names.retry_annotation(runtime)] = None
    if gone:  # or the next NodeRuntime of this name would never be taken off this node
        annotations[names.skip_annotation(runtime)] = None
    there = (node.metadata.labels, node.metadata.annotations)
    body: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {k: v for k, v in labels.items() if v is not None or k in there[0]},
            "annotations": {k: v for k, v in annotations.items() if v is not None or k in there[1]},
        }
    }
    if move.drop_taints and owner is not None:
        ours = {(t.key, t.effect) for t in owner.spec.startup_taints}
        kept = [t for t in node.spec.taints if (t.key, t.effect) not in ours]
        body["spec"] = {"taints": [_taint(t.key, t.effect, t.value, t.time_added) for t in kept]}
    return body


def _taint(key: str, effect: str, value: str, added: str | None) -> dict[str, str]:
    taint = {"key": key, "effect": effect}
    if value:
        taint["value"] = value
    if added is not None:
        taint["timeAdded"] = added
    return taint


def _rests(node: Node, runtime: str) -> bool:
    state = states(node).get(runtime)
    return state is None or state.stage in REST
