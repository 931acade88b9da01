"""What is said of a node is the controller's own decision: each signal has its sentence, each reason its advice."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.agent import gate
from reconciler.agent import work as agent_work
from reconciler.api import names
from reconciler.api.meta import Condition, Node, NodeStatus, ObjectMeta
from reconciler.api.node import NodeState, Problem, Report, Stage, WorkReport, WorkResult, encode
from reconciler.api.noderuntime import NodeRuntime, NodeRuntimeStatus
from reconciler.api.overview import TROUBLED_FIRST, Barrier, NodeRow, Verdict
from reconciler.controller import rows
from reconciler.controller.advice import ADVICE, advice
from reconciler.controller.sentences import SENTENCES
from reconciler.controller.world import NODE_INDEX, World
from reconciler.hostconfig import Code
from reconciler.kube.store import Store
from reconciler.phases.decide import decide
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts, Stop
from reconciler.phases.rollout import View
from reconciler.phases.work import BROKEN_STARTS, PASSING
from tests.unit.controller.bench import decision_source

T0 = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAN = Plan(
    phases={Stage.INSTALL: PhasePlan(timeout=60), Stage.UNINSTALL: PhasePlan(timeout=60)},
    handlers=frozenset({"kata"}),
    configures=True,
)
LABELLED = Plan(phases={Stage.INSTALL: PhasePlan(timeout=60, done_label=("vendor/done", "yes"))})
READY = Condition(type="Ready", status="True", reason="KubeletReady", last_transition_time=T0)
SERVING = Condition(type=names.SERVING_CONDITION, status="True", reason="Serving", last_transition_time=T0)
DOWN = Condition(
    type=names.SERVING_CONDITION,
    status="False",
    reason="UnitFailed",
    message="the unit has failed; see its journal",
    last_transition_time=T0,
)
CONTESTED = Condition(
    type=names.CONTESTED_CONDITION,
    status="True",
    reason="PutBackInVain",
    message="put back 2 times",
    last_transition_time=T0,
)
REPORT = Report(containerd="1.7.3", handlers=("kata", "runc"))


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def state(stage: Stage, **fields: Any) -> NodeState:
    return NodeState(**{"uid": "u1", "stage": stage, "target": "r1", "since": T0, "machine": "m", **fields})


def pod(outcome: Outcome, **fields: Any) -> PodFacts:
    base = {"uid": "p1", "name": "rr-1", "stage": Stage.INSTALL, "revision": "r1", "attempt": 1, "created": T0}
    return PodFacts(**{**base, "outcome": outcome, **fields})


def answer(stage: Stage, result: WorkResult, **fields: Any) -> WorkReport:
    return WorkReport(**{"uid": "u1", "stage": stage, "revision": "r1", "attempt": 1, "result": result, **fields})


def node(*conditions: Condition, labels: dict[str, str] | None = None, **states: NodeState) -> Node:
    annotations = {names.state_annotation(name): encode(state) for name, state in states.items()}
    annotations[names.REPORT_ANNOTATION] = encode(REPORT)
    meta = ObjectMeta(name="node-1", labels=labels or {}, annotations=annotations)
    return Node(metadata=meta, status=NodeStatus(conditions=conditions or (READY, SERVING)))


def world(*in_work: str) -> World:
    it = World(
        namespace="ns",
        nodes=Store(),
        pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
        runtimes=Store(),
        revisions=Store(),
        classes=Store(),
    )
    meta = ObjectMeta(name="kata", uid="u1", creation_timestamp=T0)
    it.runtimes.put(NodeRuntime(metadata=meta, status=NodeRuntimeStatus(in_work=in_work)))
    return it


def row(
    *, now: float = 0, on: Node | None = None, within: World | None = None, failed: bool = False, **fields: Any
) -> NodeRow:
    """What is said of the decision on these facts."""
    base: dict[str, Any] = {
        "goal": Goal("u1", "r1"),
        "state": None,
        "plans": {"r1": PLAN},
        "served": frozenset({"runc"}),
        "serving": True,
        "serving_since": T0,
        "slot": True,
        "machine": "m",
        "bake": 30.0,
    }
    facts = Facts(**{**base, **fields})
    wait = decide(facts, after(now))
    assert isinstance(wait, Wait), wait
    view = View(node="node-1", at_rest=False, failed=failed)
    return rows.build(within or world(), on or node(), "kata", facts, wait, view, after(now))


RESTING = {"state": state(Stage.READY, installed="r1"), "served": frozenset({"kata"})}
INSTALLING = {"state": state(Stage.INSTALL)}
GONE = Goal("u1")

CASES: dict[Signal, tuple[dict[str, Any], tuple[str, str, str, str, str]]] = {
    Signal.NOTHING: (
        RESTING,
        (
            "ok",
            "nothing",
            "CRI serves kata, runc (containerd 1.7.3) since 2026-01-02 03:04:05 UTC",
            "nothing until the NodeRuntime or the node changes",
            "",
        ),
    ),
    Signal.PERSON: (
        {"state": state(Stage.FAILED, failed="r1", error=Problem("PayloadFailed", "exit code 3")), "failed": True},
        (
            "failed",
            "a new revision of the NodeRuntime, or a retry",
            "revision r1 was given up on: PayloadFailed: exit code 3",
            "nothing until then",
            "read what the payload said, in its message and in its log; then `kubectl reconciler retry node-1`",
        ),
    ),
    Signal.ANOTHER_NODE: (
        {"set_aside": "container runtime cri-o is not containerd"},
        (
            "aside",
            "nothing: it is set aside and not counted",
            "container runtime cri-o is not containerd",
            "nothing",
            "nothing, or leave it out of spec.nodeSelector",
        ),
    ),
    Signal.HANDLER_FREE: (
        {"plans": {"r1": Plan(written=frozenset({"kata"}))}, "served": frozenset({"kata"})},
        (
            "waiting",
            "that CRI no longer serves a handler of another installer",
            "CRI serves kata already; remove it with what installed it, or name another handler",
            "then the install",
            "remove the handler with what installed it, or name another one in spec.handlers",
        ),
    ),
    Signal.QUIET_HOUR: (
        {"state": state(Stage.READY, installed="r1", repairs=(T0, after(1), after(2))), "now": 10},
        (
            "stuck",
            "that less than 3 repairs lie in the last hour",
            "handler kata was lost again after 3 repairs in an hour; find who edits the configuration",
            "the next repair begins at 2026-01-02 04:04:05 UTC",
            "find who else edits containerd's configuration on this node (a DaemonSet, configuration management) "
            "and end that; it goes on by itself then, or `kubectl reconciler retry node-1`",
        ),
    ),
    Signal.SLOT: (
        {"slot": False, "within": world("a", "b", "c", "d")},
        (
            "waiting",
            "its turn: a slot of rollout.maxUnavailable",
            "slots are held by a, b, c and 1 more",
            "it begins when a slot is given to it",
            "",
        ),
    ),
    Signal.NODE_READY: (
        {
            **INSTALLING,
            "node_ready": False,
            "on": node(
                Condition(type="Ready", status="Unknown", reason="NodeStatusUnknown", last_transition_time=T0), SERVING
            ),
        },
        (
            "waiting",
            "that the node is Ready",
            "condition Ready is Unknown since 2026-01-02 03:04:05 UTC: NodeStatusUnknown",
            "it goes on where it was; its deadline stands still",
            "look at kubelet on the node; if its machine is gone, delete the Node",
        ),
    ),
    Signal.AGENT: (
        {"agent_ready": False, "agent_lost": T0, "agent_reason": "no agent pod on this node", "now": 61},
        (
            "waiting",
            "a ready agent pod on the node",
            "no agent pod on this node (seen first at 2026-01-02 03:04:05 UTC)",
            "the next step begins",
            "`kubectl -n ns get pods -o wide --field-selector spec.nodeName=node-1` shows the agent; "
            "does its DaemonSet tolerate this node's taints, and can its image be pulled?",
        ),
    ),
    Signal.OTHER_RUNTIME: (
        {"free": False, "on": node(gvisor=state(Stage.CONFIGURE))},
        ("waiting", "that gvisor is done on this node", "gvisor is at work", "then its own turn", ""),
    ),
    Signal.AGENT_REPORT: (
        {
            "state": state(Stage.CONFIGURE),
            "answer": answer(Stage.CONFIGURE, WorkResult.WAITING, reason="NotWritable", message="/etc is full"),
            "now": 200,
        },
        (
            "stuck",
            "the agent's report on configure, attempt 1",
            "the agent waits: NotWritable: /etc is full",
            "then verify if the signal still comes; the time for it was over at 2026-01-02 03:07:05 UTC",
            "the configuration on the node cannot be written: read-only, immutable, or the disk is full; it goes on by "
            "itself then, or `kubectl reconciler retry node-1`",
        ),
    ),
    Signal.CONTAINERD: (
        {**INSTALLING, "serving": False, "on": node(READY, DOWN)},
        (
            "waiting",
            "that containerd serves CRI",
            "condition ContainerdServing is False since 2026-01-02 03:04:05 UTC: "
            "UnitFailed: the unit has failed; see its journal",
            "then configure; without the signal, at 2026-01-02 03:05:05 UTC, it counts as stuck",
            "read `journalctl -u containerd` on the node; run `reconciler config check` on the node: it names the "
            "file, the line and what mends it",
        ),
    ),
    Signal.CONFIG_MENDED: (
        {**INSTALLING, "contested": CONTESTED.message, "on": node(READY, SERVING, CONTESTED)},
        (
            "waiting",
            "that containerd's configuration would start, before a payload is started again",
            "condition ConfigContested is True since 2026-01-02 03:04:05 UTC: PutBackInVain: put back 2 times",
            "then configure; without the signal, at 2026-01-02 03:05:05 UTC, it counts as stuck",
            "one payload broke the same file three times, and the guard keeps its hands off: run `reconciler config "
            "check` on the node: it names the file, the line and what mends it; then mend the payload",
        ),
    ),
    Signal.BAKE: (
        {"state": state(Stage.VERIFY), "served": frozenset({"kata"}), "now": 5},
        (
            "working",
            "30 s in good health (rollout.bakeSeconds)",
            "CRI serves kata, runc (containerd 1.7.3) since 2026-01-02 03:04:05 UTC",
            "then ready, at 2026-01-02 03:04:35 UTC",
            "",
        ),
    ),
    Signal.BACKOFF: (
        {"state": state(Stage.INSTALL, attempt=2, error=Problem("PayloadTimedOut", "not within 60 s"))},
        (
            "waiting",
            "the time between two tries",
            "attempt 1 ended: PayloadTimedOut: not within 60 s",
            "attempt 2 of 3 begins at 2026-01-02 03:04:15 UTC",
            "read in its log where it hangs; raise phases.*.timeoutSeconds if it only needs longer",
        ),
    ),
    Signal.POD_STARTED: (
        {**INSTALLING, "pods": (pod(Outcome.PENDING, reason="ImagePullFailed", message="not found"),)},
        (
            "waiting",
            "that pod rr-1 starts",
            "pod rr-1, made at 2026-01-02 03:04:05 UTC, has not started: ImagePullFailed: not found",
            "the payload runs, then configure; without the signal, at 2026-01-02 03:05:05 UTC, it counts as stuck",
            "correct the image or its tag, spec.imagePullSecrets or the registry; "
            "`kubectl -n ns describe pod rr-1` says more",
        ),
    ),
    Signal.PAYLOAD_EXIT: (
        {**INSTALLING, "pods": (pod(Outcome.RUNNING),)},
        (
            "working",
            "that pod rr-1 ends with exit code 0",
            "pod rr-1, made at 2026-01-02 03:04:05 UTC, runs",
            "then configure; without the signal, at 2026-01-02 03:05:05 UTC, it is ended and tried again "
            "(attempt 2 of 3)",
            "",
        ),
    ),
    Signal.PAYLOAD_LABEL: (
        {**INSTALLING, "plans": {"r1": LABELLED}, "pods": (pod(Outcome.RUNNING),)},
        (
            "working",
            "that the payload labels the node vendor/done=yes",
            "the label is not there; pod rr-1, made at 2026-01-02 03:04:05 UTC, runs",
            "then configure; without the signal, at 2026-01-02 03:05:05 UTC, it is ended and tried again "
            "(attempt 2 of 3)",
            "",
        ),
    ),
    Signal.POD_GONE: (
        {
            "goal": GONE,
            "state": state(Stage.UNINSTALL, installed="r1", attempt=2, hurried=True),
            "pods": (pod(Outcome.RUNNING, stage=Stage.UNINSTALL, deleting=True),),
        },
        (
            "working",
            "that nothing of pod rr-1 is left",
            "pod rr-1, made at 2026-01-02 03:04:05 UTC, runs, and is being deleted; the agent has not seen its end",
            "then post-uninstall; without the signal, at 2026-01-02 03:05:05 UTC, it counts as stuck",
            "",
        ),
    ),
    Signal.POD_AGAIN: (
        {**INSTALLING, "pods": (pod(Outcome.NEVER_RAN, reason="OutOfcpu", message="not enough cpu"),)},
        (
            "waiting",
            "the time until the refused pod is made again",
            "pod rr-1, made at 2026-01-02 03:04:05 UTC, never ran: OutOfcpu: not enough cpu",
            "it is made again at 2026-01-02 03:04:15 UTC; that costs no attempt",
            "make room on the node, or lower phases.*.resources",
        ),
    ),
    Signal.REVISION: (
        {"goal": GONE, "state": state(Stage.READY, installed="r0")},
        (
            "waiting",
            "that the ControllerRevision is there again",
            "ControllerRevision of revision r0 is not there, and nothing else says how",
            "then it is uninstalled",
            "somebody deleted the ControllerRevision: restore it from a backup; without one, clean the node by hand, "
            "delete the NodeRuntime, and `kubectl reconciler skip node-1`",
        ),
    ),
    Signal.USERS_GONE: (
        {
            "goal": GONE,
            "state": state(Stage.READY, installed="r1", draining=True),
            "in_use": {"kata": ("default/db", "default/web")},
        },
        (
            "waiting",
            "that no running pod uses its handlers",
            "2 running pods use its handlers, e.g. default/db; end them, or set uninstall.whenInUse: Force",
            "looked at again every 5 s; then it is uninstalled",
            "end the pods that use the handler, or set uninstall.whenInUse: Force",
        ),
    ),
    Signal.RESUME: (
        {"state": state(Stage.INSTALL), "stopped": "everything is stopped by ann", "stops": (Stop(T0),)},
        (
            "waiting",
            "that a person lifts the stop of everything",
            "everything is stopped by ann",
            "nothing begins until then; its deadline stands still",
            "`kubectl reconciler resume`, when what it was stopped for is over",
        ),
    ),
}


def test_every_signal_has_its_sentence_and_its_case() -> None:
    assert set(SENTENCES) == set(Signal)
    assert set(CASES) == set(Signal) - {Signal.CONTROLLER}  # which is never of `decide`
    assert set(TROUBLED_FIRST) == set(Verdict)


@pytest.mark.parametrize("signal", CASES)
def test_what_is_said_of_a_signal(signal: Signal) -> None:
    given, expected = CASES[signal]
    told = row(**given)
    assert told.awaits == signal
    assert (told.verdict, told.waits_for, told.last_seen, told.next, told.advice) == expected


@pytest.mark.parametrize("stage", [s for s in Stage if s is not Stage.ABSENT])
def test_every_stage_says_since_when_and_what_comes_next(stage: Stage) -> None:
    removal = stage in (Stage.UNCONFIGURE, Stage.UNINSTALL, Stage.POST_UNINSTALL)
    plan = Plan(
        phases={s: PhasePlan(timeout=60) for s in (Stage.PRE_INSTALL, Stage.INSTALL, Stage.UNINSTALL)},
        handlers=frozenset({"kata"}),
        configures=True,
    )
    phases = {**plan.phases, Stage.POST_UNINSTALL: PhasePlan(timeout=60)}
    told = row(
        goal=GONE if removal else Goal("u1", "r1"),
        state=state(
            stage, installed="r1" if stage is Stage.READY else "", failed="r1" if stage is Stage.FAILED else ""
        ),
        plans={"r1": Plan(phases=phases, handlers=plan.handlers, configures=True)},
        pods=(pod(Outcome.RUNNING, stage=stage),) if stage in phases else (),
        served=frozenset({"kata"}),
        failed=stage is Stage.FAILED,
    )
    following = {
        Stage.PRE_INSTALL: "then install;",
        Stage.INSTALL: "then configure;",
        Stage.CONFIGURE: "then verify;",
        Stage.VERIFY: "then ready,",
        Stage.READY: "nothing until the NodeRuntime or the node changes",
        Stage.FAILED: "nothing until then",
        Stage.UNCONFIGURE: "then uninstall;",
        Stage.UNINSTALL: "then post-uninstall;",
        Stage.POST_UNINSTALL: "then absent;",
    }
    assert (told.stage, told.since) == (stage, T0)
    assert told.next.startswith(following[stage])


def test_the_third_try_is_the_last_of_an_install_and_a_removal_has_no_last() -> None:
    third = row(state=state(Stage.INSTALL, attempt=3), pods=(pod(Outcome.RUNNING, attempt=3),))
    assert third.next.endswith(
        "it is ended and given up on, after 3 attempts: the node goes back to what it had before"
    )
    removal = row(
        goal=GONE,
        state=state(Stage.UNINSTALL, attempt=7),
        pods=(pod(Outcome.RUNNING, stage=Stage.UNINSTALL, attempt=7),),
    )
    assert removal.next.endswith("it is ended and tried again (attempt 8; a removal is never given up)")


def test_a_closed_barrier_is_told_only_by_an_agent_and_a_node_that_can_be_believed() -> None:
    closed = {**INSTALLING, "serving": False, "on": node(READY, DOWN)}
    assert row(**INSTALLING, pods=(pod(Outcome.RUNNING),)).barrier is Barrier.OPEN
    assert row(**closed).barrier is Barrier.CLOSED
    assert row(**closed, agent_ready=False).barrier is Barrier.UNKNOWN
    assert row(**closed, node_ready=False).barrier is Barrier.UNKNOWN


def test_a_ready_runtime_on_a_node_that_is_not_ready_is_not_well() -> None:
    told = row(**RESTING, node_ready=False)
    assert (told.stage, told.verdict, told.awaits) == ("ready", "waiting", "node-ready")
    assert told.next == "it goes on where it was; nothing is at work"


def test_no_deadline_is_told_where_none_passes() -> None:
    assert row(**INSTALLING, pods=(pod(Outcome.RUNNING),)).deadline == after(60)
    assert row(**INSTALLING, node_ready=False).deadline is None
    assert row(**INSTALLING, slot=False).deadline is None
    assert row(**RESTING).deadline is None


def test_a_second_try_tells_what_ended_the_first() -> None:
    again = state(Stage.INSTALL, attempt=2, error=Problem("PayloadFailed", "exit code 3"))
    told = row(state=again, pods=(pod(Outcome.RUNNING, attempt=2),))
    assert (told.verdict, told.error) == (Verdict.WAITING, Problem("PayloadFailed", "exit code 3"))


def test_a_missing_revision_is_one_to_install_by_where_it_is_the_goal() -> None:
    given = row(goal=Goal("u1", "r2"), state=state(Stage.FAILED, installed="", failed="r2"), retry=True)
    assert given.next == "then it is installed"


def test_a_rolled_back_node_is_failed_although_it_is_ready() -> None:
    back = state(Stage.READY, installed="r0", target="r0", failed="r1", error=Problem("VerifyFailed", "no handler"))
    told = row(state=back, plans={"r0": PLAN, "r1": PLAN}, served=frozenset({"kata"}), failed=True)
    assert (told.verdict, told.stage, told.awaits) == ("failed", "ready", "person")
    assert told.last_seen == "revision r1 was given up on: VerifyFailed: no handler; revision r0 stays"


# --- advice ---


def _reasons_of_the_agent() -> set[str]:
    """Reasons that the agent writes out by itself."""
    sources = inspect.getsource(agent_work) + inspect.getsource(gate)
    return {gate.STOPPED, gate.STOP_UNKNOWN, *re.findall(r'(?:Wait\(\s*|WAITING, )"(\w+)"', sources)}


@pytest.mark.parametrize("reason", sorted({*Code, *PASSING, *BROKEN_STARTS, *_reasons_of_the_agent()}))
def test_every_reason_that_an_agent_or_a_broken_pod_gives_has_its_advice(reason: str) -> None:
    assert advice(reason, namespace="ns", node="n", runtime="kata", pod="p") != ""


@pytest.mark.parametrize("reason", sorted(set(re.findall(r'Problem\("(\w+)"', decision_source()))))
def test_every_trouble_that_the_decision_itself_names_has_its_advice(reason: str) -> None:
    assert reason in ADVICE


def test_what_the_agent_waits_for_is_found_by_the_test_above() -> None:
    assert {"ContainerdNotServing", "HandlerMissing", "HandlerInUse", "HostConfig"} <= _reasons_of_the_agent()


@pytest.mark.parametrize("reason", ADVICE)
def test_advice_names_no_pod_where_none_is_there(reason: str) -> None:
    told = advice(reason, namespace="ns", node="n", runtime="kata")
    assert told != ""
    assert "pod `" not in told
    assert "{" not in told
