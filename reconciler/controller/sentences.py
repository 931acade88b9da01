"""What is said of each signal that a node waits for: what it is, what was last seen of it, what comes next. Pure.

Times in a sentence are absolute, so that it changes only when the truth does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from reconciler.api import names
from reconciler.api.meta import Node, condition
from reconciler.api.node import POD_STAGES, REST, NodeState, Report, Stage, WorkResult
from reconciler.api.noderuntime import NodeRuntime
from reconciler.controller.goals import at_work_elsewhere
from reconciler.controller.world import report_of
from reconciler.phases.deadlines import deadline
from reconciler.phases.decide import successor
from reconciler.phases.decision import Signal, Wait
from reconciler.phases.facts import Facts, Outcome, PhasePlan, Plan, PodFacts
from reconciler.phases.moving import MAX_ATTEMPTS
from reconciler.phases.questions import INSTALL_PATH, current_pod
from reconciler.phases.rest import MAX_REPAIRS
from reconciler.phases.use import IN_USE_POLL

HOLDERS = 3
"""Holders of slots that are named; of more only the number."""


class Said(NamedTuple):
    waits_for: str
    last_seen: str
    next: str


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One runtime on one node at the moment of a decision."""

    name: str
    """Of the runtime."""
    node: Node
    runtime: NodeRuntime | None
    facts: Facts
    wait: Wait
    awaits: Signal
    deselected_until: datetime | None
    """When a node that is no longer selected is uninstalled."""
    now: datetime

    @property
    def report(self) -> Report:
        return report_of(self.node)

    @property
    def state(self) -> NodeState | None:
        return self.facts.state

    @property
    def stage(self) -> Stage:
        return Stage.ABSENT if self.state is None else self.state.stage

    @property
    def limit(self) -> datetime | None:
        return None if self.state is None else deadline(self.facts, self.state)

    @property
    def phase(self) -> PhasePlan:
        plan = Plan() if self.state is None else self.facts.plans.get(self.state.target, Plan())
        return plan.phases.get(self.stage, PhasePlan())

    @property
    def pod(self) -> PodFacts | None:
        """The pod that the wait is about: this stage's own, or else one that is to go first."""
        own = None if self.state is None else current_pod(self.facts, self.state)
        if self.awaits is Signal.POD_GONE:
            return next((p for p in self.facts.pods if p is not own), own)
        return own


def at(moment: datetime | None) -> str:
    """`2026-01-02 03:04:05 UTC`"""
    return "an unknown time" if moment is None else f"{moment.astimezone(UTC).isoformat(' ', 'seconds')[:19]} UTC"


def say(scene: Scene) -> Said:
    """What the scene's signal is, what was last seen of it, what comes next."""
    return SENTENCES[scene.awaits](scene)


# --- parts of sentences ---


def _seen_condition(scene: Scene, kind: str) -> str:
    found = condition(scene.node.status.conditions, kind)
    if found is None:
        return f"the Node has no condition {kind}"
    why = ": ".join(part for part in (found.reason, found.message) if part)
    return f"condition {kind} is {found.status} since {at(found.last_transition_time)}" + (f": {why}" if why else "")


def _served(scene: Scene) -> str:
    report = scene.report
    handlers = ", ".join(report.handlers) or "no handler"
    version = f" (containerd {report.containerd})" if report.containerd else ""
    return f"CRI serves {handlers}{version}"


def _barrier(scene: Scene) -> str:
    if scene.facts.serving:
        return f"{_served(scene)} since {at(scene.facts.serving_since)}"
    return _seen_condition(scene, names.SERVING_CONDITION)


def _then(scene: Scene) -> str:
    """The stage that follows."""
    if scene.state is None:
        return "installation begins"
    return f"then {successor(scene.facts, scene.state, scene.now)}"


def _in_time(scene: Scene, *, tried_again: bool = False) -> str:
    """What follows in time, and what when the time is over."""
    if scene.wait.stuck is not None:
        return f"{_then(scene)} if the signal still comes; the time for it was over at {at(scene.limit)}"
    if scene.limit is None:
        return _then(scene)
    over = _another_try(scene) if tried_again else "it counts as stuck"
    return f"{_then(scene)}; without the signal, at {at(scene.limit)}, {over}"


def _another_try(scene: Scene) -> str:
    attempt = 1 if scene.state is None else scene.state.attempt
    if scene.stage not in INSTALL_PATH:
        return f"it is ended and tried again (attempt {attempt + 1}; a removal is never given up)"
    if attempt >= MAX_ATTEMPTS:
        return f"it is ended and given up on, after {attempt} attempts: the node goes back to what it had before"
    return f"it is ended and tried again (attempt {attempt + 1} of {MAX_ATTEMPTS})"


def _pod(pod: PodFacts | None) -> str:
    return "the phase pod" if pod is None else f"pod {pod.name or pod.uid}"


def _seen_pod(pod: PodFacts | None) -> str:
    if pod is None:
        return "no pod of this attempt is there"
    words = {
        Outcome.PENDING: "has not started",
        Outcome.RUNNING: "runs",
        Outcome.SUCCEEDED: "has ended with exit code 0",
        Outcome.FAILED: "has failed",
        Outcome.NEVER_RAN: "never ran",
    }[pod.outcome]
    why = ": ".join(part for part in (pod.reason, pod.message) if part)
    going = ", and is being deleted" if pod.deleting else ""
    return f"{_pod(pod)}, made at {at(pod.created)}, {words}{going}" + (f": {why}" if why else "")


# --- one for each signal ---


def _nothing(scene: Scene) -> Said:
    if scene.state is None:
        return Said("nothing", "nothing of this runtime is on the node", "nothing")
    if scene.deselected_until is not None:
        gone = f"spec.nodeSelector does not match it any more: it is uninstalled at {at(scene.deselected_until)}"
        return Said("nothing", _barrier(scene), gone)
    return Said("nothing", _barrier(scene), "nothing until the NodeRuntime or the node changes")


def _person(scene: Scene) -> Said:
    state = scene.state
    error = None if state is None else state.error
    why = "" if error is None else f": {error.reason}: {error.message}"
    failed = "" if state is None else state.failed
    kept = f"; revision {state.installed} stays" if state is not None and state.installed else ""
    return Said(
        "a new revision of the NodeRuntime, or a retry",
        f"revision {failed} was given up on{why}{kept}",
        "nothing until then",
    )


def _another_node(scene: Scene) -> Said:
    return Said("nothing: it is set aside and not counted", scene.wait.message, "nothing")


def _handler_free(scene: Scene) -> Said:
    return Said("that CRI no longer serves a handler of another installer", scene.wait.message, "then the install")


def _quiet_hour(scene: Scene) -> Said:
    return Said(
        f"that less than {MAX_REPAIRS} repairs lie in the last hour",
        scene.wait.message,
        f"the next repair begins at {at(scene.wait.until)}",
    )


def _slot(scene: Scene) -> Said:
    held = () if scene.runtime is None else scene.runtime.status.in_work
    some = ", ".join(held[:HOLDERS]) + (f" and {len(held) - HOLDERS} more" if len(held) > HOLDERS else "")
    return Said(
        "its turn: a slot of rollout.maxUnavailable",
        f"slots are held by {some}" if held else "no slot is in use",
        "it begins when a slot is given to it",
    )


def _node_ready(scene: Scene) -> Said:
    rest = "its deadline stands still" if scene.limit is not None else "nothing is at work"
    return Said("that the node is Ready", _seen_condition(scene, "Ready"), f"it goes on where it was; {rest}")


def _agent(scene: Scene) -> Said:
    lost = scene.facts.agent_lost
    since = "" if lost is None else f" (seen first at {at(lost)})"
    following = "the next step begins" if scene.limit is None else _in_time(scene)
    return Said("a ready agent pod on the node", scene.facts.agent_reason + since, following)


def _other_runtime(scene: Scene) -> Said:
    others = ", ".join(at_work_elsewhere(scene.node, scene.name)) or "the pod of another runtime"
    return Said(f"that {others} is done on this node", f"{others} is at work", "then its own turn")


def _agent_report(scene: Scene) -> Said:
    state, answer = scene.state, scene.facts.answer
    attempt = 1 if state is None else state.attempt
    seen = "no report on this attempt"
    if answer is not None and answer.result is WorkResult.WAITING and answer.stage is scene.stage:
        seen = f"the agent waits: {answer.reason}: {answer.message}"
    elif answer is not None:
        seen += f"; the last one was {answer.result} on {answer.stage}, attempt {answer.attempt}"
    return Said(f"the agent's report on {scene.stage}, attempt {attempt}", seen, _in_time(scene))


def _containerd(scene: Scene) -> Said:
    return Said("that containerd serves CRI", _barrier_reason(scene), _in_time(scene))


def _config_mended(scene: Scene) -> Said:
    return Said(
        "that containerd's configuration would start, before a payload is started again",
        _seen_condition(scene, names.CONTESTED_CONDITION),
        _in_time(scene),
    )


def _barrier_reason(scene: Scene) -> str:
    """As it is effective: a condition of before a boot, or of a dead agent, says nothing."""
    found = condition(scene.node.status.conditions, names.SERVING_CONDITION)
    if found is None or found.status == "True":
        return scene.facts.serving_reason
    return _seen_condition(scene, names.SERVING_CONDITION)


def _bake(scene: Scene) -> Said:
    return Said(
        f"{scene.facts.bake:.0f} s in good health (rollout.bakeSeconds)",
        _barrier(scene),
        f"then ready, at {at(scene.wait.until)}",
    )


def _backoff(scene: Scene) -> Said:
    state = scene.state
    attempt = 1 if state is None else state.attempt
    of = f" of {MAX_ATTEMPTS}" if scene.stage in INSTALL_PATH else ""
    return Said(
        "the time between two tries",
        f"attempt {attempt - 1} ended: {scene.wait.message}",
        f"attempt {attempt}{of} begins at {at(scene.wait.until)}",
    )


def _pod_started(scene: Scene) -> Said:
    return Said(f"that {_pod(scene.pod)} starts", _seen_pod(scene.pod), f"the payload runs, {_in_time(scene)}")


def _payload_exit(scene: Scene) -> Said:
    waits = f"that {_pod(scene.pod)} ends with exit code 0"
    return Said(waits, _seen_pod(scene.pod), _in_time(scene, tried_again=True))


def _payload_label(scene: Scene) -> Said:
    key, value = scene.phase.done_label or ("", "")
    seen = scene.node.metadata.labels.get(key)
    label = f"the label is {seen!r}" if seen is not None else "the label is not there"
    return Said(
        f"that the payload labels the node {key}={value}",
        f"{label}; {_seen_pod(scene.pod)}",
        _in_time(scene, tried_again=True),
    )


def _pod_gone(scene: Scene) -> Said:
    pod = scene.pod
    cri = "the agent sees nothing of it in CRI" if pod is not None and pod.ended else "the agent has not seen its end"
    following = _in_time(scene) if scene.stage in POD_STAGES else "then the next step"
    return Said(f"that nothing of {_pod(pod)} is left", f"{_seen_pod(pod)}; {cri}", following)


def _pod_again(scene: Scene) -> Said:
    return Said(
        "the time until the refused pod is made again",
        _seen_pod(scene.pod),
        f"it is made again at {at(scene.wait.until)}; that costs no attempt",
    )


def _revision(scene: Scene) -> Said:
    wanted = scene.facts.goal.revision
    resting = "then it is installed" if wanted and wanted not in scene.facts.plans else "then it is uninstalled"
    following = resting if scene.stage in REST else _in_time(scene)
    return Said("that the ControllerRevision is there again", scene.wait.message, following)


def _users_gone(scene: Scene) -> Said:
    upgrade = scene.facts.goal.revision and not scene.facts.reinstall
    return Said(
        f"that no running pod uses {'a handler that goes' if upgrade else 'its handlers'}",
        scene.wait.message,
        f"looked at again every {IN_USE_POLL:.0f} s; then it is {'upgraded' if upgrade else 'uninstalled'}",
    )


def _resume(scene: Scene) -> Said:
    rest = "" if scene.state is None or scene.stage in REST else "; its deadline stands still"
    return Said("that a person lifts the stop of everything", scene.facts.stopped, f"nothing begins until then{rest}")


def _controller(scene: Scene) -> Said:
    return Said("that a controller takes the next step", scene.wait.message, "the step, as soon as a controller leads")


SENTENCES: Mapping[Signal, Callable[[Scene], Said]] = {
    Signal.NOTHING: _nothing,
    Signal.PERSON: _person,
    Signal.ANOTHER_NODE: _another_node,
    Signal.HANDLER_FREE: _handler_free,
    Signal.QUIET_HOUR: _quiet_hour,
    Signal.SLOT: _slot,
    Signal.NODE_READY: _node_ready,
    Signal.AGENT: _agent,
    Signal.OTHER_RUNTIME: _other_runtime,
    Signal.AGENT_REPORT: _agent_report,
    Signal.CONTAINERD: _containerd,
    Signal.CONFIG_MENDED: _config_mended,
    Signal.BAKE: _bake,
    Signal.BACKOFF: _backoff,
    Signal.POD_STARTED: _pod_started,
    Signal.PAYLOAD_EXIT: _payload_exit,
    Signal.PAYLOAD_LABEL: _payload_label,
    Signal.POD_GONE: _pod_gone,
    Signal.POD_AGAIN: _pod_again,
    Signal.REVISION: _revision,
    Signal.USERS_GONE: _users_gone,
    Signal.RESUME: _resume,
    Signal.CONTROLLER: _controller,
}
