"""Asks the real code: makes the real objects of an abstract state, and reads the answer back into one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from reconciler.api import meta, names, node, noderuntime
from reconciler.api.meta import Condition, ControllerRevision, Node, NodeInfo, NodeStatus, ObjectMeta
from reconciler.api.node import NodeState, Problem, Report, Stage, WorkReport, WorkResult
from reconciler.api.noderuntime import NodeRuntime, revision_data, revision_hash, revision_name
from reconciler.controller import goals, outlooks, pods
from reconciler.controller import node as shell
from reconciler.controller.runtime import RuntimeReconciler
from reconciler.controller.world import NODE_INDEX, Outlook, Stopping, World
from reconciler.kube.store import Store
from reconciler.phases.decide import decide
from reconciler.phases.decision import AskUse, Decision, EndPod, MakePod, Move, Signal, Wait
from reconciler.phases.facts import Stop
from reconciler.phases.questions import present
from reconciler.phases.rollout import View
from reconciler.phases.stop import begins
from tests.model.system import Cell, Host, Pod, Runtime, State, System

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
TIMEOUT = 1000
"""Seconds of each phase: more than the longest backoff, so that a backoff can be over before the deadline."""
BAKE = 30
AGES = {"pod": (0, 400, 5000), "verify": (0, 60, 5000), "agent": (0, 60, 5000)}
"""Seconds that stand for the three ages of a stage."""
NAMESPACE = "ns"
RUNTIME = "a"
HANDLER = "h"
OTHER = NodeState(uid="other", stage=Stage.INSTALL, since=NOW)
OTHERS_POD = meta.Pod(
    metadata=ObjectMeta(
        name="other",
        namespace=NAMESPACE,
        uid="other",
        labels={names.COMPONENT_LABEL: names.COMPONENT_PHASE, names.RUNTIME_LABEL: "other"},
    ),
    spec=meta.PodSpec(node_name="n"),
)
PHASES = {
    "pre-install": "preInstall",
    "install": "install",
    "uninstall": "uninstall",
    "post-uninstall": "postUninstall",
}
FIELDS = tuple(f for f in View.__dataclass_fields__ if f not in ("node", "rank"))


class Payload(NamedTuple):
    """What the NodeRuntimes of an instance consist of."""

    phases: tuple[str, ...] = ("install", "uninstall")
    label: bool = False
    """It says that it is done by a label and then sleeps."""
    reinstall: bool = False
    force: bool = False
    """`whenInUse: Force`."""


class Step(NamedTuple):
    """What the controller would do, and what the model needs to know of it."""

    kind: str
    """wait, move, make, end."""
    reason: str
    state: State | None = None
    labelled: bool = True
    pod: int = 0
    grace: int = 0
    clears: tuple[str, ...] = ()
    """Of done, retry, skip: what the patch takes off."""
    fenced: bool = True
    begins: bool = False
    wants_slot: bool = False
    stuck: bool = False
    awaits: str = ""
    view: tuple[object, ...] | None = None


class Real:
    """The controller's code for one kind of payload. Answers are remembered: it is a function of its arguments."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self._specs = {name: _spec(payload, image) for name, image in (("r1", "one"), ("r2", "two"))}
        self._hash = {name: revision_hash(revision_data(spec)) for name, spec in self._specs.items()} | {"": ""}
        self._name = {digest: name for name, digest in self._hash.items()}
        self._kept = {name: self._revision(name) for name in self._specs}
        self._decoded: dict[str, Any] = {}
        self._steps: dict[Any, Step] = {}
        self._admissions: dict[Any, tuple[int, ...]] = {}
        self._ends: dict[Any, bool] = {}

    # --- one runtime on one node ---

    def step(self, system: System, h: int, r: int) -> Step:
        host, runtime = system.hosts[h], system.runtimes[r]
        cell = host.cells[r]
        others = [c for n, c in enumerate(host.cells) if n != r]
        free = (not any(c.state and c.state.stage not in REST for c in others), not any(c.pods for c in others))
        held = h in runtime.in_work
        visible = cell._replace(job=None, binaries=False, skip=False, write=None)
        key = (
            visible,
            host.ready,
            host.serving,
            host.agent,
            host.machine,
            free,
            runtime._replace(in_work=(), finalizer=True),
            held,
            _last(system, h, r),
            system.stopped,
        )
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._ask(
                cell, host, runtime, free=free, held=held, last=_last(system, h, r), stopped=system.stopped
            )
        return found

    def _ask(
        self,
        cell: Cell,
        host: Host,
        runtime: Runtime,
        *,
        free: tuple[bool, bool],
        held: bool,
        last: tuple[object, ...] | None,
        stopped: bool,
    ) -> Step:
        world = self.world(runtime, held=held, stopped=stopped)
        where = self._node(cell, host, free=free[0])
        world.nodes.put(where)
        if last:
            world.outlooks[RUNTIME] = {"n": _outlook("n", last)}
        for pod in self._pods(cell, host):
            world.pods.put(pod)
        if not free[1]:
            world.pods.put(OTHERS_POD)
        state = self.real_state(cell.state)
        facts = goals.facts_for(world, where, RUNTIME, state, NOW, in_use=None)
        decision = decide(facts, NOW)
        if isinstance(decision, AskUse):
            users = {HANDLER: ("ns/user",)} if cell.users else {}
            facts = goals.facts_for(world, where, RUNTIME, state, NOW, in_use=users)
            decision = decide(facts, NOW)
        view = None
        if isinstance(decision, Wait):
            view = _view(outlooks.note(world, where, RUNTIME, facts, decision, NOW)[1])
        else:
            outlooks.step(world, where, RUNTIME, facts, decision)
            after = world.outlooks.get(RUNTIME, {}).get("n")
            view = last if last is None and after is None else _view(after)
        return self._read(cell, where, world, state, decision, view)

    def _read(
        self,
        cell: Cell,
        where: Node,
        world: World,
        state: NodeState | None,
        decision: Decision,
        view: tuple[object, ...] | None,
    ) -> Step:
        match decision:
            case Wait(reason=reason, awaits=awaits):
                return Step(
                    "wait",
                    reason,
                    wants_slot=decision.wants_slot,
                    stuck=decision.stuck is not None,
                    awaits=str(awaits),
                    view=view,
                )
            case EndPod(uid, _, grace):
                return Step("end", "EndPod", pod=int(uid), grace=grace, begins=begins(state, decision), view=view)
            case MakePod(wanted):
                return Step("make", "MakePod", self._abstract(wanted, cell.state), begins=True, view=view)
            case Move():
                return self._moved(cell, where, world, state, decision)._replace(view=view)
        raise AssertionError(decision)

    def _moved(self, cell: Cell, where: Node, world: World, state: NodeState | None, move: Move) -> Step:
        body = shell.patch_of(where, RUNTIME, move, world.runtime(RUNTIME))["metadata"]
        labels = _merged(where.metadata.labels, body["labels"])
        annotations = _merged(where.metadata.annotations, body["annotations"])
        text = annotations.get(names.state_annotation(RUNTIME))
        new = None if text is None else node.decode_state(text)
        after = msgspec.structs.replace(where, metadata=ObjectMeta(name="n", labels=labels, annotations=annotations))
        gone = {
            "done": _DONE[0] in where.metadata.labels and _DONE[0] not in labels,
            "retry": cell.retry and names.retry_annotation(RUNTIME) not in annotations,
            "skip": names.skip_annotation(RUNTIME) in body["annotations"] or text is None,
        }
        return Step(
            "move",
            move.reason,
            None if new is None else self._abstract(new, cell.state),
            labelled=goals.labels_true(after, RUNTIME, new, present(new)),
            clears=tuple(name for name, off in gone.items() if off),
            fenced="resourceVersion" in body,
            begins=begins(state, move),
        )

    # --- one runtime on all nodes ---

    def admission(self, system: System, r: int, order: str) -> tuple[int, ...]:
        """Who holds a slot from now on, by what the leader remembers. `order`: how the nodes' names sort."""
        runtime = system.runtimes[r]
        views = tuple(by_runtime[r] for by_runtime in system.views)
        hosts = tuple((host.exists, host.seen, host.cells[r].state) for host in system.hosts)
        key = (order, runtime, views, hosts, system.stopped)
        found = self._admissions.get(key)
        if found is None:
            world = self.world(runtime, held=False, stopped=system.stopped)
            real = world.runtimes.get(RUNTIME)
            assert real is not None
            status = msgspec.structs.replace(real.status, in_work=tuple(f"n{order[n]}" for n in runtime.in_work))
            real = msgspec.structs.replace(real, status=status)
            self._remember(world, system, r, order)
            admitted = outlooks.admission(world, real).in_work
            found = self._admissions[key] = tuple(sorted(order.index(name[1:]) for name in admitted))
        return found

    def _remember(self, world: World, system: System, r: int, order: str = "01") -> None:
        """The nodes, and the leader's looks at them."""
        for n, host in enumerate(system.hosts):
            if not host.exists:
                continue
            name = f"n{order[n]}"
            world.nodes.put(self._node(host.cells[r], host, free=True, name=name))
            if host.seen:
                world.seen.add(name)
            view = system.views[n][r] if system.views else None
            if view:
                world.outlooks.setdefault(RUNTIME, {})[name] = _outlook(name, view)

    def ends(self, system: System, r: int) -> bool:
        """Whether the real end of a NodeRuntime takes its finalizer off now."""
        runtime = system.runtimes[r]
        key = (
            runtime,
            tuple((h.exists, *(c := h.cells[r])[:3], c.config, c.skip) for h in system.hosts),
            tuple(v[r] for v in system.views),
        )
        if key not in self._ends:
            self._ends[key] = self._run_end(system, r)
        return self._ends[key]

    def _run_end(self, system: System, r: int) -> bool:
        runtime = system.runtimes[r]
        world = self.world(runtime, held=False, stopped=False)
        self._remember(world, system, r)
        there = [
            msgspec.structs.replace(p, spec=meta.PodSpec(node_name=f"n{n}"))
            for n, host in enumerate(system.hosts)
            for p in self._pods(host.cells[r], host, agent=False)
        ]
        client = _Client(world.nodes.list(), there)
        end: Any = RuntimeReconciler.__new__(RuntimeReconciler)
        end._world, end._client, end._wake = world, client, lambda node: None

        async def roll(*_: object) -> None:
            return None

        end._roll = roll
        end._delete_revision = roll
        try:
            end._deleting(world.runtime(RUNTIME)).send(None)
        except StopIteration:
            return client.unfinalized
        raise AssertionError("the end waits for something that the model does not have")

    # --- making the objects ---

    def world(self, runtime: Runtime, *, held: bool, stopped: bool) -> World:
        world = World(
            namespace=NAMESPACE,
            nodes=Store(),
            pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
            runtimes=Store(),
            revisions=Store(),
            classes=Store(),
            _decoded=self._decoded,
        )
        if stopped:
            world.stopping = Stopping("a person has stopped everything", None, (Stop(NOW),))
        if runtime.uid:
            world.runtimes.put(self._runtime(runtime, held=held))
        for name in runtime.kept:
            world.revisions.put(self._kept[name])
        return world

    def _runtime(self, runtime: Runtime, *, held: bool) -> NodeRuntime:
        spec = msgspec.structs.replace(self._specs[runtime.revision], paused=runtime.paused)
        return NodeRuntime(
            metadata=ObjectMeta(
                name=RUNTIME,
                uid=str(runtime.uid),
                resource_version="1",
                creation_timestamp=LONG_AGO,
                finalizers=(names.FINALIZER,) if runtime.finalizer else (),
                deletion_timestamp=NOW if runtime.deleting else None,
            ),
            spec=spec,
            status=noderuntime.NodeRuntimeStatus(in_work=("n",) if held else ()),
        )

    def _revision(self, name: str) -> ControllerRevision:
        digest = self._hash[name]
        data = msgspec.json.encode(revision_data(self._specs[name]))
        where = ObjectMeta(name=revision_name(RUNTIME, digest), namespace=NAMESPACE, uid=name)
        return ControllerRevision(metadata=where, data=msgspec.Raw(data))

    def _node(self, cell: Cell, host: Host, *, free: bool, name: str = "n") -> Node:
        state = self.real_state(cell.state)
        labels = {}
        if state is not None and cell.labelled:
            labels[names.stage_label(RUNTIME)] = str(state.stage)
            if present(state):
                labels[names.present_label(RUNTIME)] = names.PRESENT_LABEL_VALUE
        if cell.done_by:
            labels[_DONE[0]] = _DONE[1]
        annotations = {names.REPORT_ANNOTATION: node.encode(self._report(cell))}
        if state is not None:
            annotations[names.state_annotation(RUNTIME)] = node.encode(state)
        if not free:
            annotations[names.state_annotation("other")] = node.encode(OTHER)
        if cell.retry:
            annotations[names.retry_annotation(RUNTIME)] = "true"
        if cell.skip:
            annotations[names.skip_annotation(RUNTIME)] = "true"
        true = Condition(type="Ready", status="True" if host.ready else "False", last_transition_time=LONG_AGO)
        serves = Condition(
            type=names.SERVING_CONDITION,
            status="True" if host.serving else "False",
            last_transition_time=LONG_AGO,
        )
        info = NodeInfo(machine_id=f"m{host.machine}", container_runtime_version="containerd://2.2.9")
        return Node(
            metadata=ObjectMeta(name=name, resource_version="1", labels=labels, annotations=annotations),
            status=NodeStatus(conditions=(true, serves), node_info=info),
        )

    def _report(self, cell: Cell) -> Report:
        served = ("runc", HANDLER) if cell.config and not cell.lost else ("runc",)
        work = {}
        if cell.answer is not None:
            a = cell.answer
            work[RUNTIME] = WorkReport(
                uid=str(a.uid),
                stage=Stage(a.stage),
                revision=self._hash[a.revision],
                attempt=a.attempt,
                result=WorkResult(a.result),
                reason="" if a.result == "Done" else "CRIInvalid",
            )
        return Report(
            handlers=served,
            work=work,
            ended=tuple(str(p.id) for p in cell.pods if p.ended),
            journal={RUNTIME: str(cell.config)} if cell.config else {},
        )

    def _pods(self, cell: Cell, host: Host, *, agent: bool = True) -> Iterable[meta.Pod]:
        if agent and host.agent:
            yield meta.Pod(
                metadata=ObjectMeta(name="agent", uid="agent", labels={names.COMPONENT_LABEL: names.COMPONENT_AGENT}),
                spec=meta.PodSpec(node_name="n"),
                status=meta.PodStatus(conditions=(Condition(type="Ready", status="True"),)),
            )
        for pod in cell.pods:
            yield self._pod(pod)

    def _pod(self, pod: Pod) -> meta.Pod:
        labels = {
            names.COMPONENT_LABEL: names.COMPONENT_PHASE,
            names.RUNTIME_LABEL: RUNTIME,
            names.PHASE_LABEL: pod.stage,
        }
        annotations = {
            names.ATTEMPT_ANNOTATION: str(pod.attempt),
            names.REVISION_ANNOTATION: self._hash[pod.revision],
        }
        return meta.Pod(
            metadata=ObjectMeta(
                name=f"p{pod.id}",
                namespace=NAMESPACE,
                uid=str(pod.id),
                labels=labels,
                annotations=annotations,
                creation_timestamp=LONG_AGO if pod.due else NOW,
                deletion_timestamp=NOW if pod.deleting else None,
            ),
            spec=meta.PodSpec(node_name="n"),
            status=_STATUS[pod.phase],
        )

    def real_state(self, state: State | None) -> NodeState | None:
        if state is None:
            return None
        kind = "verify" if state.stage == "verify" else "agent" if "configure" in state.stage else "pod"
        return NodeState(
            uid=str(state.uid),
            stage=Stage(state.stage),
            installed=self._hash[state.installed],
            target=self._hash[state.target],
            failed=self._hash[state.failed],
            attempt=state.attempt,
            pod=str(state.pod) if state.pod else "",
            since=NOW - timedelta(seconds=AGES[kind][state.age]),
            repairs=(NOW - timedelta(minutes=10),) * state.repairs,
            draining=state.draining,
            machine=f"m{state.machine}" if state.machine else "",
            error=Problem(state.error) if state.error else None,
            forced=state.forced,
            hurried=state.hurried,
        )

    def _abstract(self, new: NodeState, old: State | None) -> State:
        return State(
            stage=str(new.stage),
            uid=int(new.uid),
            installed=self._name[new.installed],
            target=self._name[new.target],
            failed=self._name[new.failed],
            attempt=new.attempt,
            pod=int(new.pod or 0),
            repairs=len(new.repairs),
            draining=new.draining,
            error="" if new.error is None else "Error",
            forced=new.forced,
            hurried=new.hurried,
            machine=int(new.machine.removeprefix("m") or 0),
            age=0 if new.since == NOW or old is None else old.age,
        )


REST = ("ready", "failed")
_DONE = ("payload.example/done", "true")
_STATUS = {
    "pending": meta.PodStatus(phase="Pending"),
    "running": meta.PodStatus(
        phase="Running",
        container_statuses=(
            meta.ContainerStatus(name=pods.CONTAINER, state=meta.ContainerState(running=meta.StateRunning(NOW))),
        ),
    ),
    "refused": meta.PodStatus(phase="Failed", reason="OutOfcpu"),
}
for _phase, _code in (("done", 0), ("failed", 1)):
    _STATUS[_phase] = meta.PodStatus(
        phase="Failed" if _code else "Succeeded",
        container_statuses=(
            meta.ContainerStatus(
                name=pods.CONTAINER,
                state=meta.ContainerState(
                    terminated=meta.StateTerminated(exit_code=_code, reason="Error", started_at=NOW)
                ),
            ),
        ),
    )


def _spec(payload: Payload, image: str) -> noderuntime.NodeRuntimeSpec:
    phase: dict[str, Any] = {"image": image, "timeoutSeconds": TIMEOUT}
    if payload.label:
        phase["completion"] = {"nodeLabel": {"key": _DONE[0], "value": _DONE[1]}}
    body = {
        "handlers": [{"name": HANDLER, "runtimeType": "io.containerd.h.v2"}],
        "phases": {PHASES[stage]: phase for stage in payload.phases},
        "rollout": {"maxUnavailable": 1, "bakeSeconds": BAKE, "canary": {"count": 0}},
        "upgrade": {"strategy": "Reinstall" if payload.reinstall else "InPlace"},
        "uninstall": {"whenInUse": "Force" if payload.force else "Wait"},
    }
    return msgspec.convert(body, type=noderuntime.NodeRuntimeSpec)


ASKED = (True, True, False, True, False, False, False, False, False)


def _last(system: System, h: int, r: int) -> tuple[object, ...] | None:
    """What the last look at a node came to. Without a memory: always that it wants a slot."""
    return system.views[h][r] if system.views else ASKED


def _outlook(name: str, view: tuple[object, ...]) -> Outlook:
    known = View(node=name, **dict(zip(FIELDS, view, strict=False)))
    wait = Wait(reason="", awaits=Signal.NOTHING)
    return Outlook(known, wait, OTHER if view[-1] else None, True)


def _merged(before: dict[str, str], patch: dict[str, str | None]) -> dict[str, str]:
    return {k: v for k, v in {**before, **patch}.items() if v is not None}


def _view(outlook: Outlook | None) -> tuple[object, ...]:
    if outlook is None:
        return ()
    return (*(getattr(outlook.view, field) for field in FIELDS), outlook.state is not None)


class _Client:
    """Live answers for the end of a NodeRuntime, and whether it wrote that end."""

    def __init__(self, nodes: list[Node], there: list[meta.Pod]) -> None:
        self._nodes, self._there = nodes, there
        self.unfinalized = False

    async def list(self, resource: Any, *_: object, **selectors: str) -> tuple[list[Any], str]:
        if resource.plural == "pods":
            return self._there, ""
        key = selectors["label_selector"]
        return [n for n in self._nodes if key in n.metadata.labels], ""

    async def patch(self, *_: object, **__: object) -> None:
        self.unfinalized = True
