"""Stages at work: what the actor of each has done, and what follows."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from reconciler.api.node import AGENT_STAGES, NodeState, Problem, Stage, WorkResult, cut
from reconciler.phases import deadlines, leftovers, moving, questions, rest, waits
from reconciler.phases.decision import Decision, EndPod, MakePod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Outcome, PhasePlan, PodFacts

NEVER_RAN_DELAY = 10.0
"""Seconds before a pod that was refused is made again; costs no attempt."""
PASSING = frozenset({"Busy", "ContainerdNotServing", "HandlerInUse", "PodStillRunning", "RevisionMissing", "Stopped"})
"""Why an agent waits, of those reasons that go by themselves; of all others a person is told."""
BROKEN_STARTS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "ImagePullFailed", "RunContainerError", "StartError"}
)
"""Why a pod waits, of those reasons of a kubelet that hardly go away by waiting."""


def installing(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """On the way in: on with it, or to where the goal has turned meanwhile."""
    goal = questions.effective_goal(facts)
    if goal.revision and questions.moved(facts, state):
        return moving.begin_again(facts, state, goal, now)
    if goal.revision == state.target:
        return at_work(facts, state, now)
    if state.stage is Stage.CONFIGURE and goal.revision and not questions.answered(facts, state):
        return at_work(facts, state, now)  # the agent may be in the middle of it: let it finish
    if not goal.revision:
        return moving.begin_removal(facts, state, now)
    turned = msgspec.structs.replace(state, target=goal.revision, attempt=1, pod=questions.pod_uid(facts, state))
    return moving.begin_install(facts, turned, now, reason="GoalChanged")


def at_work(facts: Facts, state: NodeState, now: datetime) -> Decision:
    """The next step of the stage as it is, whatever the goal: of the agent, of the bake, or of a pod."""
    if not facts.node_ready:
        return waits.not_ready()
    if not facts.agent_ready:
        known = waits.agentless(facts, now)
        return waits.waiting(facts, state, now, known.awaits, known.reason, known.message, known.trouble, known.until)
    if state.stage in AGENT_STAGES:
        return _agent_stage(facts, state, now)
    if state.stage is Stage.VERIFY:
        return _verify(facts, state, now)
    return _pod_stage(facts, state, now)


def _agent_stage(facts: Facts, state: NodeState, now: datetime) -> Decision:
    answer = facts.answer if questions.answered(facts, state) else None
    sleeper = next((p for p in facts.pods if p.outcome in (Outcome.RUNNING, Outcome.PENDING) and not p.deleting), None)
    if (
        sleeper is not None and facts.serving
    ):  # it signalled by a label, or the goal changed: the agent waits for its end
        return EndPod(sleeper.uid, sleeper.stage, leftovers.grace(facts, sleeper))
    if facts.force != state.forced and (answer is None or answer.result is WorkResult.WAITING):
        message = f"uninstall.whenInUse is {'Force' if facts.force else 'Wait'} now"
        return Move(
            state=msgspec.structs.replace(state, forced=facts.force), reason="WhenInUseChanged", message=message
        )
    if answer is None:
        message = f"waits for the agent's report on {state.stage}"
        return waits.waiting(facts, state, now, Signal.AGENT_REPORT, "WaitingForAgent", message)
    if answer.result is WorkResult.DONE:
        return moving.advance(facts, state, now)
    if answer.result is WorkResult.WAITING:
        refused = None if answer.reason in PASSING else Problem(answer.reason or "AgentWaiting", cut(answer.message))
        reason = answer.reason or "AgentWaiting"
        return waits.waiting(facts, state, now, Signal.AGENT_REPORT, reason, answer.message, refused)
    problem = Problem(answer.reason or "AgentFailed", cut(answer.message))
    if state.stage is Stage.CONFIGURE:
        return moving.give_up(facts, state, problem, now)
    return moving.next_attempt(facts, state, problem, now)


def _verify(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if (leftover := leftovers.end_leftovers(facts, state, now)) is not None:
        return leftover
    if not facts.serving:
        return waits.waiting(facts, state, now, Signal.CONTAINERD, "ContainerdNotServing", facts.serving_reason)
    if (missing := waits.missing(facts, state, state.target, now)) is not None:
        return missing
    plan = questions.plan_of(facts, state.target)
    if not plan.handlers <= facts.served:
        return rest.repair(facts, state, plan, now)
    done = max(state.since, facts.serving_since or state.since) + timedelta(seconds=facts.bake)
    if now >= done:
        return moving.advance(facts, state, now)
    return Wait(reason="Baking", awaits=Signal.BAKE, message=f"stays healthy until {done:%H:%M:%S} UTC", until=done)


def _pod_stage(facts: Facts, state: NodeState, now: datetime) -> Decision:
    if (leftover := leftovers.end_leftovers(facts, state, now)) is not None:
        return leftover
    phase = questions.plan_of(facts, state.target).phases.get(state.stage)
    if phase is None:
        return waits.missing(facts, state, state.target, now) or moving.advance(facts, state, now)
    pod = questions.current_pod(facts, state)
    if pod is None:
        return _make(facts, state, phase, now)
    if _signalled(facts, pod, phase):
        return _finished(facts, state, pod, phase, now)
    if pod.outcome is Outcome.NEVER_RAN:
        return _never_ran(facts, state, pod, now)
    if pod.outcome is Outcome.FAILED:
        return moving.next_attempt(facts, state, Problem(pod.reason or "PayloadFailed", cut(pod.message)), now)
    if pod.deleting:
        message = "somebody deleted the phase pod; it is made again when gone"
        return waits.waiting(facts, state, now, Signal.POD_GONE, "PodEnding", message)
    limit = deadlines.deadline(facts, state)
    if limit is not None and now >= limit and pod.outcome in (Outcome.RUNNING, Outcome.SUCCEEDED):
        did = "end" if phase.done_label is None else f"label the node {'='.join(phase.done_label)}"
        message = f"phase {state.stage} did not {did} within {phase.timeout:.0f} s"
        return moving.next_attempt(facts, state, Problem("PayloadTimedOut", message), now)
    broken = Problem(pod.reason, cut(pod.message)) if pod.reason in BROKEN_STARTS else None
    return waits.waiting(
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
        return waits.waiting(facts, state, now, Signal.CONTAINERD, "ContainerdNotServing", facts.serving_reason)
    if facts.answer is not None and facts.answer.result is WorkResult.WAITING:
        message = f"waits for the agent to let go of {facts.answer.stage}, which it may have begun"
        return waits.waiting(facts, state, now, Signal.AGENT_REPORT, "WaitingForAgent", message)
    if facts.contested:
        contested = Problem("ConfigContested", cut(facts.contested))
        return waits.waiting(facts, state, now, Signal.CONFIG_MENDED, contested.reason, contested.message, contested)
    if not facts.slot:  # asked for last: what waits with one past its deadline gives it back at once
        return Wait(reason="WaitingForSlot", awaits=Signal.SLOT, message="its turn has not come", wants_slot=True)
    ready = deadlines.resumes(state)
    if now < ready:
        message = questions.text(state.error)
        return Wait(reason="Backoff", awaits=Signal.BACKOFF, message=message, until=ready, trouble=state.error)
    return MakePod(state)


def _signalled(facts: Facts, pod: PodFacts, phase: PhasePlan) -> bool:
    if phase.done_label is None:
        return pod.outcome is Outcome.SUCCEEDED
    return facts.done_label


def _finished(facts: Facts, state: NodeState, pod: PodFacts, phase: PhasePlan, now: datetime) -> Decision:
    """The payload has done its part. An install is sealed by the agent in configure; all others need its word now."""
    if phase.done_label is None and state.stage is not Stage.INSTALL and not pod.ended:
        message = "waits for the agent to see that nothing of the pod runs"
        return waits.waiting(facts, state, now, Signal.POD_GONE, "PodEnding", message)
    return moving.advance(facts, state, now)


def _never_ran(facts: Facts, state: NodeState, pod: PodFacts, now: datetime) -> Decision:
    again = pod.created + timedelta(seconds=NEVER_RAN_DELAY)
    refused = Problem(pod.reason or "PodRefused", cut(pod.message))
    if now < again:
        return Wait(reason=refused.reason, awaits=Signal.POD_AGAIN, message=pod.message, until=again, trouble=refused)
    if pod.deleting or not facts.serving:
        return waits.waiting(facts, state, now, Signal.POD_GONE, refused.reason, pod.message, refused)
    return EndPod(pod.uid, pod.stage, 0)
