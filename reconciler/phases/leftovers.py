"""Pods of other steps than the one at hand: they end, and are seen to have ended, before it begins."""

from __future__ import annotations

from datetime import datetime

from reconciler.api.node import NodeState, Stage
from reconciler.phases import questions, waits
from reconciler.phases.decision import Decision, EndPod, Signal, Wait
from reconciler.phases.facts import Facts, Outcome, PhasePlan, Plan, PodFacts


def end_leftovers(facts: Facts, state: NodeState | None, now: datetime) -> Decision | None:
    """End, or wait for, every pod that is not this stage's own."""
    current = None if state is None else questions.current_pod(facts, state)
    for pod in facts.pods:
        if pod is current:
            continue
        over = pod.ended or _sealed(state, pod)
        if pod.deleting and not over:
            return _pod_ending(facts, state, pod, now)
        if not facts.serving:
            return waits.waiting(facts, state, now, Signal.CONTAINERD, "ContainerdNotServing", facts.serving_reason)
        if over:
            return EndPod(pod.uid, pod.stage, 0)
        if pod.outcome is Outcome.FAILED or (pod.outcome is Outcome.SUCCEEDED and pod.stage is not Stage.INSTALL):
            return _pod_ending(facts, state, pod, now)
        return EndPod(pod.uid, pod.stage, grace(facts, pod))
    return None


def grace(facts: Facts, pod: PodFacts) -> int:
    """At least 1 s for what may run: with 0 the object goes at once, and its container runs on beside the next one."""
    return max(1, facts.plans.get(pod.revision, Plan()).phases.get(pod.stage, PhasePlan()).grace)


def _pod_ending(facts: Facts, state: NodeState | None, pod: PodFacts, now: datetime) -> Wait:
    message = f"waits until nothing of the {pod.stage} pod runs"
    return waits.waiting(facts, state, now, Signal.POD_GONE, "PodEnding", message)


def _sealed(state: NodeState | None, pod: PodFacts) -> bool:
    """The agent has answered configure, and so has seen that nothing of the pod before it runs."""
    return state is not None and state.stage in (Stage.VERIFY, Stage.READY) and pod.uid == state.pod
