"""One NodeRuntime: finalizer, revisions, RuntimeClasses, slots, status, and its end."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.api.meta import ControllerRevision, Node
from reconciler.api.node import Problem
from reconciler.api.noderuntime import (
    NodeRuntime,
    NodeRuntimeStatus,
    UnreadableNodeRuntime,
    revision_data,
    revision_hash,
    revision_name,
)
from reconciler.controller import classes, goals, installers, outlooks, problems, status
from reconciler.controller.rehearsal import Rehearsal
from reconciler.controller.stopping import Held
from reconciler.controller.telemetry import Telemetry
from reconciler.controller.unused import Unused
from reconciler.controller.world import World, report_in, report_of, states
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from reconciler.kube.resources import CONTROLLERREVISIONS, NODERUNTIMES, NODES, PODS
from reconciler.kube.workers import After, Done, Result
from reconciler.phases.facts import Goal
from reconciler.phases.rollout import Admission

log = logging.getLogger(__name__)

STATUS_INTERVAL = 1.0
"""Seconds between two status writes that only count; slots are written at once."""
CONFLICT_DELAY = 0.05
"""Seconds until a stale write is tried on fresh facts."""
CONFLICT_DELAY_MAX = 5.0
"""Seconds, doubled up to here: a watch that died without a word is behind for 70 s."""
RECHECK = 20.0
"""Seconds, spread over half of it, until what no watch tells of is asked again: a right, a policy, a ServiceAccount."""
CLEAN_POLL = 0.5
"""Seconds between looks at what still keeps the finalizer, beside the events that tell of it."""


class RuntimeReconciler:
    """Reconciles one NodeRuntime key. Raises ApiError and TransportError: the queue backs off."""

    def __init__(
        self,
        world: World,
        client: Client,
        *,
        confirm: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        telemetry: Telemetry,
        wake: Callable[[str], None],
    ) -> None:
        """`wake(node)` queues a node; `confirm()` raises Held while everything is stopped."""
        self._world = world
        self._client = client
        self._confirm_unstopped = confirm
        self._clock = clock
        self._telemetry = telemetry
        self._wake = wake
        self._rng = rng
        self._rehearsal = Rehearsal(client, world.namespace)
        self._written: dict[str, float] = {}
        self._unused = Unused()
        self._conflicts: dict[str, int] = {}
        """By runtime: refused writes in a row."""
        self._altered: classes.Altered = {}

    async def reconcile(self, name: str) -> Result:
        runtime = self._world.runtime(name)
        if runtime is None:
            self._world.outlooks.pop(name, None)
            self._world.problems.pop(name, None)
            self._world.refused.pop(name, None)
            self._world.giving_back.pop(name, None)
            self._rehearsal.forget(name)
            self._written.pop(name, None)
            self._unused.forget(name)
            self._conflicts.pop(name, None)
            return Done()
        conflicts = self._conflicts.pop(name, 0)
        try:
            if runtime.metadata.deletion_timestamp is not None:
                return await self._deleting(runtime)
            return await self._living(runtime)
        except (Conflict, Held):
            self._conflicts[name] = conflicts + 1
            return After(min(CONFLICT_DELAY * 2 ** min(conflicts, 10), CONFLICT_DELAY_MAX))
        except Forbidden as error:
            problem = problems.forbidden(error.message)
            if problem.reason == problems.FORBIDDEN:
                self._telemetry.forbidden("noderuntime")
            await self.tell(name, problem)
            raise

    async def _living(self, runtime: NodeRuntime) -> Result:
        if self._world.stopping.words:
            # nothing is prepared either: the RuntimeClass of a new revision would replace the old one
            return await self._roll(runtime, runtime.status.revision)
        problem = problems.found(self._world, runtime)
        if isinstance(runtime, UnreadableNodeRuntime):
            self._settle(runtime, problem)
            return await self._roll(runtime, runtime.status.revision)
        if names.FINALIZER not in runtime.metadata.finalizers:
            runtime = await self._add_finalizer(runtime)
        problem = problem or await self._refused(runtime)
        self._settle(runtime, problem)
        revision = runtime.status.revision if problem is not None else await self._keep_revision(runtime)
        if problem is None:
            outlooks.outdate(self._world, Goal(runtime.metadata.uid, revision), runtime.metadata.name)
        result = await self._roll(runtime, revision)
        if problem is not None:
            again = RECHECK * (0.75 + self._rng.random() / 2)
            return After(min(again, result.seconds) if isinstance(result, After) else again)
        await self._drop_revisions(runtime, revision)
        await self._drop_classes(runtime)
        return result

    async def tell(self, name: str, problem: Problem) -> None:
        """Say on the NodeRuntime what keeps us from our work; all else of its status stays as it is.

        Raises ApiError and TransportError.
        """
        runtime = self._world.runtime(name)
        if runtime is None:
            return
        wanted = status.with_problem(runtime, problem, self._clock.now())
        if wanted != runtime.status:
            await self._write_status(runtime, wanted)

    # --- what is made before the first node is touched ---

    async def _add_finalizer(self, runtime: NodeRuntime) -> NodeRuntime:
        patch = {
            "metadata": {
                "resourceVersion": runtime.metadata.resource_version,
                "finalizers": [*runtime.metadata.finalizers, names.FINALIZER],
            }
        }
        answer: NodeRuntime = await self._client.patch(NODERUNTIMES, runtime.metadata.name, patch)
        self._world.runtimes.apply_write(answer)
        return answer

    async def _keep_revision(self, runtime: NodeRuntime) -> str:
        data = revision_data(runtime.spec)
        revision = revision_hash(data)
        name = revision_name(runtime.metadata.name, revision)
        if self._world.revisions.get(name, self._world.namespace) is not None:
            return revision
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": name,
                "namespace": self._world.namespace,
                "labels": {names.RUNTIME_LABEL: runtime.metadata.name},
                "annotations": {names.UID_ANNOTATION: runtime.metadata.uid, names.REVISION_ANNOTATION: revision},
            },
            "revision": runtime.metadata.generation,
            "data": msgspec.to_builtins(data),
        }
        try:
            kept = await self._client.create(CONTROLLERREVISIONS, body, self._world.namespace)
        except AlreadyExists:
            kept = await self._client.get(CONTROLLERREVISIONS, name, self._world.namespace)
        self._world.revisions.apply_write(kept)
        self._wake_all(runtime)
        return revision

    async def _drop_revisions(self, runtime: NodeRuntime, current: str) -> None:
        """A revision that no node carries, no phase pod is of, and that is not wanted is let go: how long a payload may
        take to end is written there."""
        name = runtime.metadata.name
        carried = {current, runtime.status.revision} | self._carried(name) | self._running(name)
        for kept in self._kept(name):
            if kept.metadata.annotations.get(names.REVISION_ANNOTATION) not in carried:
                await self._delete_revision(kept)

    async def _drop_classes(self, runtime: NodeRuntime) -> None:
        """A RuntimeClass that neither the spec nor the revision of a node asks for is let go."""
        name = runtime.metadata.name
        carried = (self._world.revision(name, revision) for revision in self._carried(name) - {""})
        asked = (*runtime.spec.handlers, *(h for data in carried if data is not None for h in data.handlers))
        keep = {h.runtime_class.name for h in asked if h.runtime_class is not None}
        await classes.remove(self._client, self._world.classes.list(), runtime, keep=keep)

    async def _delete_revision(self, kept: ControllerRevision) -> None:
        try:
            await self._client.delete(
                CONTROLLERREVISIONS, kept.metadata.name, kept.metadata.namespace, uid=kept.metadata.uid
            )
        except NotFound:
            return

    def _kept(self, name: str) -> list[ControllerRevision]:
        return [r for r in self._world.revisions.list() if r.metadata.labels.get(names.RUNTIME_LABEL) == name]

    def _carried(self, name: str) -> set[str]:
        """Revisions that nodes carry; while the state of one cannot be read, it may be any."""
        found: set[str] = set()
        for node in self._world.nodes.list():
            there = states(node)
            if name not in there:
                continue
            state = there[name]
            if state is None:
                return {kept.metadata.annotations.get(names.REVISION_ANNOTATION, "") for kept in self._kept(name)}
            found |= {state.installed, state.target}
        return found

    def _running(self, name: str) -> set[str]:
        """Revisions of phase pods that are there."""
        pods = (pod.metadata for pod in self._world.pods.list())
        return {
            pod.annotations.get(names.REVISION_ANNOTATION, "")
            for pod in pods
            if pod.labels.get(names.RUNTIME_LABEL) == name
        }

    # --- may it run ---

    async def _refused(self, runtime: NodeRuntime) -> Problem | None:
        """What the API server refuses of this NodeRuntime before any node is asked."""
        data = revision_data(runtime.spec)
        revision = revision_hash(data)
        if self._world.revision(runtime.metadata.name, revision) is None:  # one that is kept was rehearsed before
            refused = await self._rehearsal.refused(runtime, revision, data, self._clock.now())
            if refused is not None:
                return refused
        try:
            for made in await classes.ensure(self._client, self._world.classes.list(), runtime, self._altered):
                self._world.classes.apply_write(made)
        except classes.ForeignClass as error:
            return Problem("RuntimeClassConflict", str(error))
        except classes.RefusedClass as error:
            return Problem("InvalidRuntimeClass", str(error))
        return None

    def _settle(self, runtime: NodeRuntime, problem: Problem | None) -> None:
        """Hold the nodes back, or let them go on."""
        name = runtime.metadata.name
        if problem == self._world.problems.get(name):
            return
        if problem is None:
            del self._world.problems[name]
        else:
            self._world.problems[name] = problem
        self._wake_all(runtime)

    # --- slots and status ---

    async def _roll(self, runtime: NodeRuntime, revision: str) -> Result:
        """Slots and status; looked at again when a slot that nobody uses is old enough to be given back."""
        name = runtime.metadata.name
        if name in self._world.giving_back:  # the last write failed, and may have been done all the same
            runtime = await self._client.get(NODERUNTIMES, name)
            self._world.runtimes.apply_write(runtime)
            for node in sorted(self._world.giving_back.pop(name)):
                self._wake(node)
        views = {node: look.view for node, look in self._world.outlooks.get(name, {}).items()}
        now = self._clock.monotonic()
        fresh = self._unused.fresh(name, runtime.status.in_work, views, now)
        result = await self._write_roll(runtime, revision, outlooks.admission(self._world, runtime, fresh))
        if not fresh:
            return result
        left = min(fresh.values()) - now
        return After(min(left, result.seconds) if isinstance(result, After) else left)

    async def _write_roll(self, runtime: NodeRuntime, revision: str, admission: Admission) -> Result:
        name = runtime.metadata.name
        in_work = admission.in_work
        wanted = self._status(runtime, revision, admission)
        if _same(wanted, runtime.status):
            return Done()
        if name in self._written and _same(wanted, msgspec.structs.replace(runtime.status, summary=wanted.summary)):
            return Done()  # it never changes alone: a CRD of an older release drops it
        if in_work == runtime.status.in_work and wanted.observed_generation == runtime.status.observed_generation:
            rest = self._written.get(name, -STATUS_INTERVAL) + STATUS_INTERVAL - self._clock.monotonic()
            if rest > 0:
                return After(rest)
        self._world.giving_back[name] = frozenset(runtime.status.in_work) - frozenset(in_work)  # before the first await
        if set(in_work) - set(runtime.status.in_work):
            await self._confirm_unstopped()
        await self._write_status(runtime, wanted)
        del self._world.giving_back[name]
        for node in sorted(set(in_work) ^ set(runtime.status.in_work)):
            self._wake(node)
        return Done()

    def _status(self, runtime: NodeRuntime, revision: str, admission: Admission) -> NodeRuntimeStatus:
        name = runtime.metadata.name
        owned = tuple(sorted(c.metadata.name for c in self._world.classes.list() if classes.owned(c, runtime)))
        mine = [node for node in self._world.nodes.list() if goals.takes_part(runtime, node)]
        return status.build(
            runtime,
            self._world.outlooks.get(name, {}),
            revision=revision,
            in_work=admission.in_work,
            halted=admission.halted,
            stopped=self._world.stopping.told,
            selected=len(mine),
            installers=self._world.installers or self._installers(mine),
            problem=self._world.problems.get(name),
            refused=self._world.refused.get(name, {}),
            classes=owned,
            now=self._clock.now(),
        )

    def _installers(self, nodes: list[Node]) -> list[tuple[str, str]]:
        """DaemonSets of others that edit the configuration of one of `nodes`, and by which path."""
        found = []
        for daemonset in self._world.daemonsets.list():
            path = installers.config_mount(daemonset)
            if path and installers.on_nodes(daemonset, nodes):
                found.append((f"{daemonset.metadata.namespace}/{daemonset.metadata.name}", path))
        return sorted(found)

    async def _write_status(self, runtime: NodeRuntime, wanted: NodeRuntimeStatus) -> None:
        """Compare-and-swap: the slots in it are what admits nodes to work. Raises Conflict on a stale view."""
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": runtime.metadata.resource_version},
            "status": _merge(runtime, wanted),
        }
        answer = await self._client.patch(NODERUNTIMES, runtime.metadata.name, body, subresource="status")
        self._world.runtimes.apply_write(answer)
        self._written[runtime.metadata.name] = self._clock.monotonic()
        for kind, reason, message in status.news(runtime.status.conditions, wanted.conditions):
            self._telemetry.event(runtime.metadata.name, kind, reason, message)

    # --- its end ---

    async def _deleting(self, runtime: NodeRuntime) -> Result:
        if names.FINALIZER not in runtime.metadata.finalizers:
            return Done()
        self._world.problems.pop(runtime.metadata.name, None)
        name = runtime.metadata.name
        if self._carriers(runtime) or self._seen_carrying(name) or self._holding(name):
            return await self._roll(runtime, runtime.status.revision)
        if await self._left_behind(runtime):
            return After(CLEAN_POLL)
        await classes.remove(self._client, self._world.classes.list(), runtime)
        for kept in self._kept(name):
            await self._delete_revision(kept)
        await self._remove_finalizer(runtime)
        return Done()

    def _seen_carrying(self, name: str) -> bool:
        """Whether a node that nobody has given up carried `name` at the last look."""
        return any(
            outlook.state is not None and not self._skipped(node, name)
            for node, outlook in self._world.outlooks.get(name, {}).items()
        )

    def _skipped(self, node: str, name: str) -> bool:
        found = self._world.nodes.get(node)
        return found is not None and names.skip_annotation(name) in found.metadata.annotations

    def _carriers(self, runtime: NodeRuntime) -> list[str]:
        """Nodes that still carry a state of this NodeRuntime and that nobody has given up."""
        name = runtime.metadata.name
        return [
            node.metadata.name
            for node in self._not_given_up(name)
            if names.state_annotation(name) in node.metadata.annotations
        ]

    async def _left_behind(self, runtime: NodeRuntime) -> bool:
        """Looked at past the caches, before the finalizer goes: nodes that carry us, and phase pods."""
        name = runtime.metadata.name
        nodes, _ = await self._client.list(NODES, label_selector=names.stage_label(name))
        if any(names.skip_annotation(name) not in n.metadata.annotations for n in nodes):
            return True
        if self._unheard(name):
            return True
        pods, _ = await self._client.list(
            PODS,
            self._world.namespace,
            label_selector=f"{names.COMPONENT_LABEL}={names.COMPONENT_PHASE},{names.RUNTIME_LABEL}={name}",
        )
        left = [pod.spec.node_name for pod in pods if not self._skipped(pod.spec.node_name, name)]
        for node in left:
            self._wake(node)
        return bool(left)

    def _holding(self, name: str) -> bool:
        """Whether a node without a mark of ours has a host whose journal holds `name`, by the last report of its agent.

        It will be undone by that.
        """
        return any(name in report_of(node).journal for node in self._not_given_up(name))

    def _unheard(self, name: str) -> bool:
        """Whether a node may carry us whose labels and annotations somebody took away, the agent's report too.

        Its agent reports anew. A node without a report and without an agent has nobody who could say more.
        """
        return any(
            report_in(node) is None and not self._world.agent_missing(node.metadata.name)
            for node in self._not_given_up(name)
        )

    def _not_given_up(self, name: str) -> Iterator[Node]:
        """Nodes that nobody has given up."""
        return (
            node for node in self._world.nodes.list() if names.skip_annotation(name) not in node.metadata.annotations
        )

    async def _remove_finalizer(self, runtime: NodeRuntime) -> None:
        patch = {
            "metadata": {
                "resourceVersion": runtime.metadata.resource_version,
                "finalizers": [f for f in runtime.metadata.finalizers if f != names.FINALIZER],
            }
        }
        try:
            await self._client.patch(NODERUNTIMES, runtime.metadata.name, patch)
        except NotFound:
            return

    def _wake_all(self, runtime: NodeRuntime) -> None:
        for node in self._world.nodes.list():
            self._wake(node.metadata.name)


def _same(one: NodeRuntimeStatus, other: NodeRuntimeStatus) -> bool:
    return bool(msgspec.to_builtins(one) == msgspec.to_builtins(other))


def _merge(runtime: NodeRuntime, wanted: NodeRuntimeStatus) -> dict[str, Any]:
    """Merge patch of the status: stages that are not there any more are taken off."""
    body: dict[str, Any] = msgspec.to_builtins(wanted)
    body["nodes"] = {f: getattr(wanted.nodes, f) for f in wanted.nodes.__struct_fields__}
    body["stages"] = {**dict.fromkeys(runtime.status.stages), **body["stages"]}
    return body
