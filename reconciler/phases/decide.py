"""The stage machine of one runtime on one node (design section 4): `decide(facts, now) -> Decision`.

Rules that every branch keeps:
* A stage has one actor. Before the actor of a stage begins, no pod of another step is left: neither in
  the API nor, as the agent has seen, in CRI.
* Progress is recorded before the evidence of it is removed, so a kill between any two writes repeats
  nothing and loses nothing.
* Done signals are read before deadlines; deadlines stand still while the node cannot act.
* On the way in the binaries come before the configuration, on the way out after it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from reconciler.api.node import AGENT_STAGES, POD_STAGES, REST, NodeState, Problem, Stage, WorkResult, cut
from reconciler.phases import stop
from reconciler.phases.decision import AskUse, Decision, EndPod, MakePod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal, Outcome, PhasePlan, Plan, PodFacts

INSTALL_PATH = (Stage.PRE_INSTALL, Stage.INSTALL, Stage.CONFIGURE, Stage.VERIFY)
REMOVAL_PATH = (Stage.UNCONFIGURE, Stage.UNINSTALL, Stage.POST_UNINSTALL)
MAX_ATTEMPTS = 3
"""Tries of an install phase before the node is given up on for this revision."""
BACKOFF_BASE = 10.0
BACKOFF_MAX = 300.0
"""Seconds between tries of a phase: 10, 20, 40 … 300."""
AGENT_TIMEOUT = 180.0
"""Seconds for configure and unconfigure: twice systemd's default start timeout of 90 s."""
VERIFY_GRACE = 120.0
"""Seconds on top of the bake before a node that does not get healthy is stuck."""
NEVER_RAN_DELAY = 10.0
"""Seconds before a pod that was refused is made again; costs no attempt."""
MAX_REPAIRS = 3
"""Repairs an hour; after that somebody else's configuration management is fighting us."""
MAX_SIGNALS = 8
"""Keys of done labels that a node keeps in mind: payloads have one or two, and a key has up to 317 characters."""
IN_USE_POLL = 5.0
"""Seconds between lists of the pods that use a handler: other people's pods are not watched."""
LEADER_GRACE = 15.0
"""Seconds after a change of leader in which no deadline passes."""
AGENT_GRACE = 60.0
"""Seconds that a node may be without an agent before it is told of: one that joins has to pull its image first."""
PASSING = frozenset({"Busy", "ContainerdNotServing", "HandlerInUse", "PodStillRunning", "RevisionMissing", "Stopped"})
"""Why an agent waits, of those reasons that go by themselves; of all others a person is told."""
BROKEN_STARTS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "ImagePullFailed", "RunContainerError", "StartError"}
)
"""Why a pod waits, of those reasons of a kubelet that hardly go away by waiting."""


def decide(facts: Facts, now: datetime) -> Decision:
    """The next step of this runtime on this node."""
    decision = _retried(facts, _next(facts, now), now) if facts.retry else _next(facts, now)
    return stop.held(facts, decision) if facts.stopped else decision


def _next(facts: Facts, now: datetime) -> Decision:
    state = facts.state
    if state is None or state.stage is Stage.ABSENT:
        return _at_absent(facts, now)
    if state.stage is Stage.FAILED:
        return _at_failed(facts, state, now)
    if not facts.labels_true:
        return Move(state=state, reason="LabelsRestored")
    if state.stage is Stage.READY:
        return _at_ready(facts, state, now)
    if state.stage in REMOVAL_PATH:
        return _work(facts, state, now)
    return _installing(facts, state, now)


def present(state: NodeState | None) -> bool:
    """Whether the node carries the `present` label: binaries and handler are there and stay."""
    return (
        state is not None
        and state.installed != ""
        and not state.draining
        and (state.stage is Stage.READY or state.stage in INSTALL_PATH)
    )


def effective_goal(facts: Facts) -> Goal:
    """The goal, unless this very revision was given up on here: then what was installed before, or nothing."""
    goal, state = facts.goal, facts.state
    if state is None:
        return goal
    if goal.uid != state.uid:
        return Goal(state.uid)
    if goal.revision and goal.revision == state.failed:
        return Goal(goal.uid, state.installed)
    return goal


def deadline(facts: Facts, state: NodeState) -> datetime | None:
    """When this stage becomes stuck. It runs from the end of the pause between two tries, and stands still while the
    node is NotReady, while everything is stopped (None then), and after a change of leader."""
    seconds = _allowed(facts, state)
    if seconds is None:
        return None
    begin = max(_resumes(state), facts.node_ready_since or state.since)
    limit = stop.still(begin + timedelta(seconds=seconds), begin, facts.stops)
    if limit is None:
        return None
    if facts.leading_since is not None:
        limit = max(limit, facts.leading_since + timedelta(seconds=LEADER_GRACE))
    return limit


def current_pod(facts: Facts, state: NodeState) -> PodFacts | None:
    """The phase pod of this very stage, revision and attempt."""
    wanted = (state.stage, state.target, state.attempt)
    if state.stage not in POD_STAGES:
        return None
    return next((p for p in facts.pods if (p.stage, p.revision, p.attempt) == wanted and p.uid != state.pod), None)


def successor(facts: Facts, state: NodeState, now: datetime) -> Stage:
    """The stage that follows when this one is done."""
    step = _advance(facts, state, now)
    return step.state.stage if isinstance(step, Move) and step.state is not None else Stage.ABSENT


# --- at rest -------------------------------------------------------------------------------------


def _at_absent(facts: Facts, now: datetime) -> Decision:
    if (leftover := _end_leftovers(facts, None, now)) is not None:
        return leftover
    if not facts.labels_true:
        return Move(state=None, reason="LabelsRestored")
    if facts.dirty and (not facts.goal.revision or facts.goal.uid != facts.dirty):
        return _undo_journal(facts, now)
    if not facts.goal.revision:
        return Wait(reason="Absent", awaits=Signal.NOTHING)
    return _taken(facts) or _start(facts, now) or _begin_install(facts, _fresh(facts, now), now)


def _taken(facts: Facts) -> Wait | None:
    """A handler that we are to write is served on a node that has nothing of ours: another installer was here."""
    taken = _plan(facts, facts.goal.revision).written & facts.served
    if not taken or facts.dirty:
        return None
    message = (
        f"CRI serves {', '.join(sorted(taken))} already; remove it with what installed it, or name another handler"
    )
    return Wait(
        reason="HandlerConflict",
        awaits=Signal.HANDLER_FREE,
        message=message,
        trouble=Problem("HandlerConflict", message),
    )


def _undo_journal(facts: Facts, now: datetime) -> Decision:
    """The machine came back with a configuration of ours that no state on the Node tells of."""
    if (waits := _start(facts, now)) is not None:
        return waits
    found = NodeState(uid=facts.dirty, stage=Stage.ABSENT, since=now, machine=facts.machine)
    return _enter(facts, found, Stage.UNCONFIGURE, now, "LeftoverFound", "the host's journal holds this runtime")


def _at_failed(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if (leftover := _end_leftovers(facts, None, now)) is not None:
        return leftover
    goal = facts.goal
    if goal.uid != state.uid or not goal.revision:
        return Move(state=None, reason="Absent")
    if goal.revision == state.failed and not facts.retry:
        return Wait(reason="Failed", awaits=Signal.PERSON, message=state.error.message if state.error else "")
    return (
        _blocked(facts, now)
        or _missing(facts, state, goal.revision, now)
        or _start(facts, now)
        or _begin_install(facts, _fresh(facts, now), now)
    )


def _at_ready(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if facts.tainted and facts.goal.revision == state.installed:
        return Move(state=state, reason="StartupTaintsRemoved", drop_taints=True)
    leftover = _end_leftovers(facts, state, now)
    if isinstance(leftover, EndPod):
        return leftover
    goal = effective_goal(facts)
    if facts.retry and facts.goal.revision and facts.goal.uid == state.uid:
        goal = facts.goal
    if not goal.revision:
        return (
            _blocked(facts, now)
            or _missing(facts, state, state.installed, now)
            or _in_use(facts, state, now)
            or _start(facts, now)
            or _begin_removal(facts, state, now)
        )
    if state.draining and (goal.revision == state.installed or not facts.reinstall):
        return Move(state=msgspec.structs.replace(state, draining=False), reason="Kept")
    if _moved(facts, state):
        return (
            _blocked(facts, now)
            or _missing(facts, state, goal.revision, now)
            or _start(facts, now)
            or _begin_again(facts, state, goal, now)
        )
    if goal.revision != state.installed:
        if facts.reinstall:
            return (
                _blocked(facts, now)
                or _missing(facts, state, state.installed, now)
                or _in_use(facts, state, now)
                or _start(facts, now)
                or _begin_removal(facts, state, now)
            )
        upgrade = msgspec.structs.replace(state, target=goal.revision, attempt=1, error=None, failed="")
        return (
            _blocked(facts, now)
            or _missing(facts, state, goal.revision, now)
            or _loses_used(facts, state, goal, now)
            or _start(facts, now)
            or _begin_install(facts, upgrade, now, reason="Upgrade")
        )
    if state.failed and facts.goal.revision == state.installed:  # asked for once more, that one is tried again
        return Move(state=msgspec.structs.replace(state, failed="", error=None), reason="Reverted")
    plan = _plan(facts, state.installed)
    if facts.serving and not plan.handlers <= facts.served:
        return _repair(facts, state, plan, now)
    if facts.retry:
        return Move(state=state, reason="NothingToRetry", clear_retry=True)
    return leftover or Wait(reason="Ready", awaits=Signal.NOTHING)


def _repair(facts: Facts, state: NodeState, plan: Plan, now: datetime) -> Decision:
    recent = () if facts.retry else tuple(t for t in state.repairs if now - t < timedelta(hours=1))
    lost = ", ".join(sorted(plan.handlers - facts.served))
    if len(recent) >= MAX_REPAIRS:
        message = (
            f"handler {lost} was lost again after {len(recent)} repairs in an hour; find who edits the configuration"
        )
        return Wait(
            reason="Contested",
            awaits=Signal.QUIET_HOUR,
            message=message,
            until=recent[0] + timedelta(hours=1),
            stuck=Problem("Contested", message),
        )
    again = msgspec.structs.replace(state, repairs=(*recent, now), attempt=1)
    message = f"CRI does not serve {lost}"
    return _start(facts, now) or _enter(
        facts, again, Stage.CONFIGURE, now, "HandlerLost", message, clear_retry=facts.retry
    )


def _start(facts: Facts, now: datetime) -> Wait | None:
    """What keeps a node from leaving rest, or None."""
    if (blocked := _blocked(facts, now)) is not None:
        return blocked
    if not facts.slot:
        return Wait(reason="WaitingForSlot", awaits=Signal.SLOT, message="its turn has not come", wants_slot=True)
    return None


def _blocked(facts: Facts, now: datetime) -> Wait | None:
    """What keeps a node from leaving rest even with a slot; waiting for it holds none."""
    if facts.set_aside:
        return Wait(reason="SetAside", awaits=Signal.ANOTHER_NODE, message=facts.set_aside)
    if not facts.node_ready:
        return _not_ready()
    if not facts.agent_ready:
        return _agentless(facts, now)
    if not facts.free:
        return Wait(
            reason="OtherRuntimeAtWork",
            awaits=Signal.OTHER_RUNTIME,
            message="another runtime is at work on this node",
        )
    return None


def _not_ready() -> Wait:
    return Wait(
        reason="NodeNotReady",
        awaits=Signal.NODE_READY,
        message="the node is NotReady; it goes on when it is Ready again",
    )


def _agentless(facts: Facts, now: datetime) -> Wait:
    """Without its agent a node begins nothing."""
    missing = Problem("AgentMissing", cut(facts.agent_reason))
    told = (facts.agent_lost or now) + timedelta(seconds=AGENT_GRACE)
    if now < told:
        return Wait(reason=missing.reason, awaits=Signal.AGENT, message=missing.message, until=told)
    return Wait(reason=missing.reason, awaits=Signal.AGENT, message=missing.message, trouble=missing)


def _retried(facts: Facts, decision: Decision, now: datetime) -> Decision:
    """A person asks for another try of what is stuck, or does not want to wait for the next one."""
    state = facts.state
    if state is None or state.stage in REST or not isinstance(decision, Wait):
        return decision
    if (decision.stuck is None and decision.awaits is not Signal.BACKOFF) or not facts.agent_ready:
        return decision
    again = msgspec.structs.replace(state, attempt=state.attempt + 1, pod=_pod_uid(facts, state))
    message = "a person asked for it"
    return _enter(facts, again, state.stage, now, "Retried", message, clear_retry=True, hurried=True)


# --- at work -------------------------------------------------------------------------------------


def _installing(facts: Facts, state: NodeState, now: datetime) -> Decision:
    goal = effective_goal(facts)
    if goal.revision and _moved(facts, state):
        return _begin_again(facts, state, goal, now)
    if goal.revision == state.target:
        return _work(facts, state, now)
    if state.stage is Stage.CONFIGURE and goal.revision and not _answered(facts, state):
        return _work(facts, state, now)  # the agent may be in the middle of it: let it finish
    if not goal.revision:
        return _begin_removal(facts, state, now)
    turned = msgspec.structs.replace(state, target=goal.revision, attempt=1, pod=_pod_uid(facts, state))
    return _begin_install(facts, turned, now, reason="GoalChanged")


def _moved(facts: Facts, state: NodeState) -> bool:
    """Another machine under this name, or a fresh root: nothing of what was done is there."""
    return facts.machine != "" and state.machine != "" and facts.machine != state.machine


def _begin_again(facts: Facts, state: NodeState, goal: Goal, now: datetime) -> Decision:
    """From the first stage, whatever was done on the machine before; its pods are ended first."""
    fresh = msgspec.structs.replace(
        _fresh(facts, now),
        target=goal.revision,
        failed=state.failed,
        pod=_pod_uid(facts, state),
        signals=state.signals,
    )
    return _begin_install(facts, fresh, now, reason="MachineChanged")


def _work(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if not facts.node_ready:
        return _not_ready()
    if not facts.agent_ready:
        known = _agentless(facts, now)
        return _waiting(facts, state, now, known.awaits, known.reason, known.message, known.trouble, known.until)
    if state.stage in AGENT_STAGES:
        return _agent_stage(facts, state, now)
    if state.stage is Stage.VERIFY:
        return _verify(facts, state, now)
    return _pod_stage(facts, state, now)


def _agent_stage(facts: Facts, state: NodeState, now: datetime) -> Decision:
    answer = facts.answer if _answered(facts, state) else None
    sleeper = next((p for p in facts.pods if p.outcome in (Outcome.RUNNING, Outcome.PENDING) and not p.deleting), None)
    if (
        sleeper is not None and facts.serving
    ):  # it signalled by a label, or the goal changed: the agent waits for its end
        return EndPod(sleeper.uid, sleeper.stage, _grace(facts, sleeper))
    if facts.force != state.forced and (answer is None or answer.result is WorkResult.WAITING):
        message = f"uninstall.whenInUse is {'Force' if facts.force else 'Wait'} now"
        return Move(
            state=msgspec.structs.replace(state, forced=facts.force), reason="WhenInUseChanged", message=message
        )
    if answer is None:
        message = f"waits for the agent's report on {state.stage}"
        return _waiting(facts, state, now, Signal.AGENT_REPORT, "WaitingForAgent", message)
    if answer.result is WorkResult.DONE:
        return _advance(facts, state, now)
    if answer.result is WorkResult.WAITING:
        refused = None if answer.reason in PASSING else Problem(answer.reason or "AgentWaiting", cut(answer.message))
        reason = answer.reason or "AgentWaiting"
        return _waiting(facts, state, now, Signal.AGENT_REPORT, reason, answer.message, refused)
    problem = Problem(answer.reason or "AgentFailed", cut(answer.message))
    if state.stage is Stage.CONFIGURE:
        return _give_up(facts, state, problem, now)
    return _next_attempt(facts, state, problem, now)


def _verify(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if (leftover := _end_leftovers(facts, state, now)) is not None:
        return leftover
    if not facts.serving:
        return _waiting(facts, state, now, Signal.CONTAINERD, "ContainerdNotServing", facts.serving_reason)
    if (missing := _missing(facts, state, state.target, now)) is not None:
        return missing
    plan = _plan(facts, state.target)
    if not plan.handlers <= facts.served:
        return _repair(facts, state, plan, now)
    done = max(state.since, facts.serving_since or state.since) + timedelta(seconds=facts.bake)
    if now >= done:
        return _advance(facts, state, now)
    return Wait(reason="Baking", awaits=Signal.BAKE, message=f"stays healthy until {done:%H:%M:%S} UTC", until=done)


def _pod_stage(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if (leftover := _end_leftovers(facts, state, now)) is not None:
        return leftover
    phase = _plan(facts, state.target).phases.get(state.stage)
    if phase is None:
        return _missing(facts, state, state.target, now) or _advance(facts, state, now)
    pod = current_pod(facts, state)
    if pod is None:
        return _make(facts, state, phase, now)
    if _signalled(facts, pod, phase):
        return _finished(facts, state, pod, phase, now)
    if pod.outcome is Outcome.NEVER_RAN:
        return _never_ran(facts, state, pod, now)
    if pod.outcome is Outcome.FAILED:
        return _next_attempt(facts, state, Problem(pod.reason or "PayloadFailed", cut(pod.message)), now)
    if pod.deleting:
        message = "somebody deleted the phase pod; it is made again when gone"
        return _waiting(facts, state, now, Signal.POD_GONE, "PodEnding", message)
    limit = deadline(facts, state)
    if limit is not None and now >= limit and pod.outcome in (Outcome.RUNNING, Outcome.SUCCEEDED):
        did = "end" if phase.done_label is None else f"label the node {'='.join(phase.done_label)}"
        message = f"phase {state.stage} did not {did} within {phase.timeout:.0f} s"
        return _next_attempt(facts, state, Problem("PayloadTimedOut", message), now)
    broken = Problem(pod.reason, cut(pod.message)) if pod.reason in BROKEN_STARTS else None
    return _waiting(
        facts,
        state,
        now,
        _payload_signal(pod, phase),
        pod.reason or "WaitingForPayload",
        pod.message or f"waits for the {state.stage} pod",
        broken,
    )


def _payload_signal(pod: PodFacts, phase: PhasePlan) -> Signal:
    if pod.outcome is Outcome.PENDING:
        return Signal.POD_STARTED
    return Signal.PAYLOAD_EXIT if phase.done_label is None else Signal.PAYLOAD_LABEL


def _make(facts: Facts, state: NodeState, phase: PhasePlan, now: datetime) -> Decision:
    if phase.done_label is not None and facts.done_label:
        return Move(state=state, reason="OldSignalCleared", clear_labels=phase.done_label[:1])
    if not facts.serving:
        return _waiting(facts, state, now, Signal.CONTAINERD, "ContainerdNotServing", facts.serving_reason)
    if facts.answer is not None and facts.answer.result is WorkResult.WAITING:
        message = f"waits for the agent to let go of {facts.answer.stage}, which it may have begun"
        return _waiting(facts, state, now, Signal.AGENT_REPORT, "WaitingForAgent", message)
    if facts.contested:
        contested = Problem("ConfigContested", cut(facts.contested))
        return _waiting(facts, state, now, Signal.CONFIG_MENDED, contested.reason, contested.message, contested)
    if not facts.slot:  # asked for last: what waits with one past its deadline gives it back at once
        return Wait(reason="WaitingForSlot", awaits=Signal.SLOT, message="its turn has not come", wants_slot=True)
    ready = _resumes(state)
    if now < ready:
        message = _text(state.error)
        return Wait(reason="Backoff", awaits=Signal.BACKOFF, message=message, until=ready, trouble=state.error)
    return MakePod(state)


def _resumes(state: NodeState) -> datetime:
    """When the pause before this try of a phase ends."""
    if state.stage not in POD_STAGES or state.attempt == 1 or state.hurried:
        return state.since
    return state.since + timedelta(seconds=min(BACKOFF_BASE * 2 ** min(state.attempt - 2, 10), BACKOFF_MAX))


def _signalled(facts: Facts, pod: PodFacts, phase: PhasePlan) -> bool:
    if phase.done_label is None:
        return pod.outcome is Outcome.SUCCEEDED
    return facts.done_label


def _finished(facts: Facts, state: NodeState, pod: PodFacts, phase: PhasePlan, now: datetime) -> Decision:
    """The payload has done its part. An install is sealed by the agent in configure; all others need its word now."""
    if phase.done_label is None and state.stage is not Stage.INSTALL and not pod.ended:
        message = "waits for the agent to see that nothing of the pod runs"
        return _waiting(facts, state, now, Signal.POD_GONE, "PodEnding", message)
    return _advance(facts, state, now)


def _never_ran(facts: Facts, state: NodeState, pod: PodFacts, now: datetime) -> Decision:
    again = pod.created + timedelta(seconds=NEVER_RAN_DELAY)
    refused = Problem(pod.reason or "PodRefused", cut(pod.message))
    if now < again:
        return Wait(reason=refused.reason, awaits=Signal.POD_AGAIN, message=pod.message, until=again, trouble=refused)
    if pod.deleting or not facts.serving:
        return _waiting(facts, state, now, Signal.POD_GONE, refused.reason, pod.message, refused)
    return EndPod(pod.uid, pod.stage, 0)


# --- moving --------------------------------------------------------------------------------------


def _advance(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """To the next stage that has something to do."""
    done = msgspec.structs.replace(state, pod=_pod_uid(facts, state), error=None if not state.failed else state.error)
    if state.stage in REMOVAL_PATH:
        return _next_removal(facts, done, state.stage, now)
    if state.stage is Stage.PRE_INSTALL:
        step = Stage.INSTALL if _has(facts, done, Stage.INSTALL) else Stage.CONFIGURE
        return _enter(facts, done, step, now, "PhaseDone")
    if state.stage is Stage.INSTALL:
        return _enter(facts, done, Stage.CONFIGURE, now, "PhaseDone")
    if state.stage is Stage.CONFIGURE and facts.bake > 0:
        return _enter(facts, done, Stage.VERIFY, now, "Configured")
    return _ready(facts, done, now)


def _ready(facts: Facts, state: NodeState, now: datetime) -> Decision:
    ready = msgspec.structs.replace(_at_rest(state, Stage.READY, now), installed=state.target, machine=facts.machine)
    return Move(
        state=ready,
        reason="Ready",
        message=f"revision {state.target} is ready",
        clear_labels=_done_labels(facts, state),
        drop_taints=facts.tainted,
    )


def _at_rest(state: NodeState, stage: Stage, now: datetime) -> NodeState:
    return msgspec.structs.replace(
        state, stage=stage, attempt=1, since=now, deadline=None, forced=False, hurried=False, signals=()
    )


def _begin_install(facts: Facts, state: NodeState, now: datetime, reason: str = "InstallStarted") -> Decision:
    if (missing := _missing(facts, facts.state or state, state.target, now)) is not None:
        return missing
    for step in (Stage.PRE_INSTALL, Stage.INSTALL):
        if _has(facts, state, step):
            return _enter(facts, state, step, now, reason, clear_retry=facts.retry)
    return _enter(facts, state, Stage.CONFIGURE, now, reason, clear_retry=facts.retry)


def _begin_removal(facts: Facts, state: NodeState, now: datetime, problem: Problem | None = None) -> Decision:
    """The first step out, by the revision whose payload ran here last."""
    by = state.installed if state.stage in (Stage.PRE_INSTALL, Stage.READY) and state.installed else state.target
    if (missing := _missing(facts, state, by, now)) is not None:
        return missing
    plan = _plan(facts, by)
    if state.stage is not Stage.READY and (used := _in_use(facts, state, now)) is not None:
        return used
    out = msgspec.structs.replace(
        state, target=by, attempt=1, pod=_pod_uid(facts, state), draining=False, error=problem or state.error
    )
    if _holds(facts) or (_wrote(facts, state) and plan.configures):
        return _enter(facts, out, Stage.UNCONFIGURE, now, "RemovalStarted", clear_retry=facts.retry)
    return _next_removal(facts, out, Stage.UNCONFIGURE, now)


def _wrote(facts: Facts, state: NodeState) -> bool:
    """Whether the agent may have written something for this runtime."""
    return _holds(facts) or state.installed != "" or state.stage in (Stage.CONFIGURE, Stage.VERIFY)


def _holds(facts: Facts) -> bool:
    """Whether the host may hold what this state does not tell of, of an earlier try: its journal says so, or the agent
    has not let go of a configure that waited."""
    answer = facts.answer
    begun = answer is not None and answer.stage is Stage.CONFIGURE and answer.result is WorkResult.WAITING
    return facts.dirty != "" or begun


def _in_use(facts: Facts, state: NodeState, now: datetime) -> Decision | None:
    """What keeps a removal waiting for the pods that use our handlers; asked before a slot is."""
    plan = _plan(facts, state.installed or state.target)
    if not plan.handlers or not _wrote(facts, state) or facts.force:
        return None
    if facts.in_use is None:
        return AskUse()
    users = _users(facts, plan.handlers)
    return _drain(state, users, now) if users else None


def _loses_used(facts: Facts, state: NodeState, goal: Goal, now: datetime) -> Decision | None:
    """What keeps an upgrade waiting for the pods whose handler the new revision lacks; asked before a slot is. New pods
    are let in all the same: the label that would keep them out is that of the handlers which stay, too."""
    lost = _plan(facts, state.installed).handlers - _plan(facts, goal.revision).handlers
    if not lost or facts.force:
        return None
    if facts.in_use is None:
        return AskUse()
    users = _users(facts, lost)
    return _wait_for(users, f"{', '.join(sorted(lost))}, not in revision {goal.revision}", now) if users else None


def _users(facts: Facts, handlers: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted({pod for handler in handlers for pod in (facts.in_use or {}).get(handler, ())}))


def _drain(state: NodeState, users: tuple[str, ...], now: datetime) -> Decision:
    waits = _wait_for(users, "its handlers", now)
    if present(state):
        drained = msgspec.structs.replace(state, draining=True)
        return Move(state=drained, reason="HandlerInUse", message=cut(waits.message))
    return waits


def _wait_for(users: tuple[str, ...], what: str, now: datetime) -> Wait:
    message = f"{len(users)} running pods use {what}, e.g. {users[0]}; end them, or set uninstall.whenInUse: Force"
    return Wait(
        reason="HandlerInUse",
        awaits=Signal.USERS_GONE,
        message=message,
        until=now + timedelta(seconds=IN_USE_POLL),
    )


def _missing(facts: Facts, state: NodeState, revision: str, now: datetime) -> Wait | None:
    """What keeps a node waiting whose ControllerRevision is not there: no step of it is passed over. One that went with
    its NodeRuntime is not waited for."""
    if not revision or revision in facts.plans or not facts.owned:
        return None
    message = f"ControllerRevision of revision {revision} is not there, and nothing else says how"
    missing = Problem("RevisionMissing", message)
    return _waiting(facts, state, now, Signal.REVISION, missing.reason, message, missing)


def _next_removal(facts: Facts, state: NodeState, after: Stage, now: datetime) -> Decision:
    if (missing := _missing(facts, state, state.target, now)) is not None:
        return missing
    for step in REMOVAL_PATH[REMOVAL_PATH.index(after) + 1 :]:
        if _has(facts, state, step):
            return _enter(facts, state, step, now, "PhaseDone")
    if any(not pod.ended for pod in facts.pods) and after is not Stage.POST_UNINSTALL:
        return _enter(facts, state, Stage.POST_UNINSTALL, now, "PodsEnding")
    goal = facts.goal
    if state.failed and goal.uid == state.uid and goal.revision == state.failed:
        failed = msgspec.structs.replace(_at_rest(state, Stage.FAILED, now), installed="", target="", pod="")
        return Move(state=failed, reason="Failed", message=_text(state.error), clear_labels=_done_labels(facts, state))
    return Move(state=None, reason="Absent", message="uninstalled", clear_labels=_done_labels(facts, state))


def _done_labels(facts: Facts, state: NodeState) -> tuple[str, ...]:
    """Keys of every phase that is known, and of those that ran before: a payload on its way out may have set its own
    again, after it was taken off."""
    found = (phase.done_label for plan in facts.plans.values() for phase in plan.phases.values())
    return tuple(sorted({label[0] for label in found if label is not None} | {*state.signals}))


def _signals(facts: Facts, entered: NodeState) -> tuple[str, ...]:
    """`signals` with the key of the phase that begins, the latest last."""
    phase = _plan(facts, entered.target).phases.get(entered.stage)
    if phase is None or phase.done_label is None:
        return entered.signals
    key = phase.done_label[0]
    return (*(other for other in entered.signals if other != key), key)[-MAX_SIGNALS:]


def _next_attempt(facts: Facts, state: NodeState, problem: Problem, now: datetime) -> Decision:
    """Try again; an install that has failed often enough is given up on, a removal never is."""
    if state.stage in INSTALL_PATH and state.attempt >= MAX_ATTEMPTS:
        return _give_up(facts, state, problem, now)
    again = msgspec.structs.replace(state, attempt=state.attempt + 1, error=problem, pod=_pod_uid(facts, state))
    return _enter(facts, again, state.stage, now, "AttemptFailed", _text(problem))


def _give_up(facts: Facts, state: NodeState, problem: Problem, now: datetime) -> Decision:
    lost = msgspec.structs.replace(state, failed=state.target, error=problem, attempt=1, pod=_pod_uid(facts, state))
    if state.installed and state.installed != state.target:
        back = msgspec.structs.replace(lost, target=state.installed)
        return _begin_install(facts, back, now, reason="RolledBack")
    if state.installed == state.target:
        lost = msgspec.structs.replace(lost, installed="")
    return _begin_removal(facts, lost, now, problem)


def _enter(
    facts: Facts,
    state: NodeState,
    stage: Stage,
    now: datetime,
    reason: str,
    message: str = "",
    *,
    clear_retry: bool = False,
    hurried: bool = False,
) -> Move:
    attempt = state.attempt if stage is state.stage else 1
    answer = facts.answer
    if answer is not None and (answer.uid, answer.stage, answer.revision) == (state.uid, stage, state.target):
        attempt = max(attempt, answer.attempt + 1)  # an answer that is there already must not count again
    forced = facts.force and stage in AGENT_STAGES
    entered = msgspec.structs.replace(state, stage=stage, since=now, attempt=attempt, forced=forced, hurried=hurried)
    seconds = _timeout(facts, entered)
    limit = None if seconds is None else _resumes(entered) + timedelta(seconds=seconds)
    return Move(
        state=msgspec.structs.replace(entered, deadline=limit, signals=_signals(facts, entered)),
        reason=reason,
        message=message,
        clear_labels=_done_labels(facts, entered),
        clear_retry=clear_retry,
    )


# --- small questions -----------------------------------------------------------------------------


def _waiting(
    facts: Facts,
    state: NodeState | None,
    now: datetime,
    awaits: Signal,
    reason: str,
    message: str,
    trouble: Problem | None = None,
    until: datetime | None = None,
) -> Wait:
    """Wait until the deadline, or `until` if that is sooner; a second try is in trouble for what ended the first."""
    limit = None if state is None else deadline(facts, state)
    trouble = trouble or (state.error if state is not None and state.attempt > 1 else None)
    if limit is None or now < limit:
        dues = [due for due in (limit, until) if due is not None]
        return Wait(reason=reason, awaits=awaits, message=message, until=min(dues, default=None), trouble=trouble)
    stuck = Problem(reason, cut(message))
    return Wait(reason=reason, awaits=awaits, message=message, stuck=stuck, trouble=trouble)


def _end_leftovers(facts: Facts, state: NodeState | None, now: datetime) -> Decision | None:
    """End, or wait for, every pod that is not this stage's own."""
    current = None if state is None else current_pod(facts, state)
    for pod in facts.pods:
        if pod is current:
            continue
        over = pod.ended or _sealed(state, pod)
        if pod.deleting and not over:
            return _pod_ending(facts, state, pod, now)
        if not facts.serving:
            return _waiting(facts, state, now, Signal.CONTAINERD, "ContainerdNotServing", facts.serving_reason)
        if over:
            return EndPod(pod.uid, pod.stage, 0)
        if pod.outcome is Outcome.FAILED or (pod.outcome is Outcome.SUCCEEDED and pod.stage is not Stage.INSTALL):
            return _pod_ending(facts, state, pod, now)
        return EndPod(pod.uid, pod.stage, _grace(facts, pod))
    return None


def _grace(facts: Facts, pod: PodFacts) -> int:
    """At least 1 s for what may run: with 0 the object goes at once, and its container runs on beside the next one."""
    return max(1, facts.plans.get(pod.revision, Plan()).phases.get(pod.stage, PhasePlan()).grace)


def _pod_ending(facts: Facts, state: NodeState | None, pod: PodFacts, now: datetime) -> Wait:
    message = f"waits until nothing of the {pod.stage} pod runs"
    return _waiting(facts, state, now, Signal.POD_GONE, "PodEnding", message)


def _sealed(state: NodeState | None, pod: PodFacts) -> bool:
    """The agent has answered configure, and so has seen that nothing of the pod before it runs."""
    return state is not None and state.stage in (Stage.VERIFY, Stage.READY) and pod.uid == state.pod


def _pod_uid(facts: Facts, state: NodeState) -> str:
    pod = current_pod(facts, state)
    return pod.uid if pod is not None else state.pod


def _answered(facts: Facts, state: NodeState) -> bool:
    answer = facts.answer
    return answer is not None and (answer.uid, answer.stage, answer.revision, answer.attempt) == (
        state.uid,
        state.stage,
        state.target,
        state.attempt,
    )


def _fresh(facts: Facts, now: datetime) -> NodeState:
    return NodeState(
        uid=facts.goal.uid, stage=Stage.ABSENT, target=facts.goal.revision, since=now, machine=facts.machine
    )


def _plan(facts: Facts, revision: str) -> Plan:
    """A revision that nobody knows any more may have configured something."""
    return facts.plans.get(revision, Plan(configures=True))


def _has(facts: Facts, state: NodeState, stage: Stage) -> bool:
    return stage in _plan(facts, state.target).phases


def _timeout(facts: Facts, state: NodeState) -> float | None:
    """Seconds that a stage may take, None at rest."""
    if state.stage in AGENT_STAGES:
        return AGENT_TIMEOUT
    if state.stage is Stage.VERIFY:
        return facts.bake + VERIFY_GRACE
    if state.stage in POD_STAGES:
        return _plan(facts, state.target).phases.get(state.stage, PhasePlan()).timeout
    return None


def _allowed(facts: Facts, state: NodeState) -> float | None:
    """`_timeout`; of a phase whose revision is missing, what was written down when it began."""
    if state.stage in POD_STAGES and state.target not in facts.plans and state.deadline is not None:
        return (state.deadline - _resumes(state)).total_seconds()
    return _timeout(facts, state)


def _text(problem: Problem | None) -> str:
    return "" if problem is None else f"{problem.reason}: {problem.message}"
