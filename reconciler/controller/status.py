"""The status of a NodeRuntime, from what is seen of its nodes. Pure; never claims more than was proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from reconciler.api.meta import Condition, condition
from reconciler.api.node import Problem, Stage, cut
from reconciler.api.noderuntime import FailedNode, NodeCounts, NodeRuntime, NodeRuntimeStatus, Summary
from reconciler.controller.halts import why
from reconciler.controller.installers import message as installers_message
from reconciler.controller.notes import pointing
from reconciler.controller.world import Outlook

FOREIGN = "ForeignInstaller"
"""Condition type, and its reason while it holds."""
STOPPED = "Stopped"
"""Reason of condition Progressing, and of an Event: a person has stopped everything."""
FAILED_MAX = 20
"""Nodes listed in `status.failed`; the whole number is in `status.nodes`."""


def build(
    runtime: NodeRuntime,
    outlooks: Mapping[str, Outlook],
    *,
    revision: str,
    in_work: tuple[str, ...],
    halted: str,
    stopped: str,
    selected: int,
    installers: Problem | list[tuple[str, str]],
    problem: Problem | None,
    refused: Mapping[str, Problem],
    classes: tuple[str, ...],
    now: datetime,
) -> NodeRuntimeStatus:
    """The status that should be; transition times are kept where a condition's status is as it was.

    `selected`: nodes that the runtime is for, looked at already or not. `refused`: by node, what the API server
    has refused. `stopped`: who has stopped everything, and how it ends; empty when nobody has. `installers`: what
    other installers were found, or why nobody can tell.
    """
    counted = {name: o for name, o in outlooks.items() if o.counted}
    summed = counts(counted.values())
    view = _View(runtime, counted, summed, halted, stopped, selected, _trouble(counted, refused))
    wanted = _conditions(view, problem)
    if (foreign := _foreign(installers, runtime)) is not None:
        wanted.append(msgspec.structs.replace(foreign, observed_generation=runtime.metadata.generation))
    return NodeRuntimeStatus(
        observed_generation=runtime.metadata.generation,
        revision=revision,
        conditions=tuple(_timed(c, runtime.status.conditions, now) for c in wanted),
        nodes=summed,
        summary=summary(summed, counted.values()),
        stages=stages(counted.values()),
        in_work=in_work,
        failed=tuple(_failed(name, o) for name, o in sorted(counted.items()) if o.view.failed or o.view.stuck)[
            :FAILED_MAX
        ],
        runtime_classes=classes,
    )


def counts(counted: Collection[Outlook]) -> NodeCounts:
    """How many nodes are how far, of those that belong to the NodeRuntime's total."""
    return NodeCounts(
        total=len(counted),
        ready=sum(1 for o in counted if o.serves),
        updating=sum(1 for o in counted if not o.view.at_rest),
        failed=sum(1 for o in counted if o.view.failed),
        stuck=sum(1 for o in counted if o.view.stuck),
    )


def stages(counted: Collection[Outlook]) -> dict[str, int]:
    """How many nodes are in which stage, sorted by its name."""
    found = Counter(str(o.state.stage if o.state else Stage.ABSENT) for o in counted)
    return dict(sorted(found.items()))


def summary(summed: NodeCounts, counted: Collection[Outlook]) -> Summary:
    """Never empty in a field: a merge patch would not take an old value off."""
    at_work = [o for o in counted if not o.view.at_rest]
    found = Counter(Stage.ABSENT if o.state is None else o.state.stage for o in at_work or counted)
    order = [*Stage]
    most = min(found, key=lambda stage: (-found[stage], order.index(stage)), default=Stage.ABSENT)
    return Summary(ready=f"{summed.ready}/{summed.total}", stage=str(most))


@dataclass(frozen=True)
class _View:
    """What the conditions are made from."""

    runtime: NodeRuntime
    outlooks: Mapping[str, Outlook]
    counts: NodeCounts
    halted: str
    stopped: str
    selected: int
    trouble: Problem | None
    """Of the first node that is in some."""

    @property
    def deleting(self) -> bool:
        return self.runtime.metadata.deletion_timestamp is not None

    @property
    def waiting(self) -> list[str]:
        """`node: reason` of the nodes that are not done."""
        undone = ((name, o) for name, o in self.outlooks.items() if o.lost or not o.view.done)
        return [f"{name}: {o.wait.reason}" for name, o in sorted(undone, key=lambda pair: pair[0])]


def _conditions(view: _View, problem: Problem | None) -> list[Condition]:
    generation = view.runtime.metadata.generation
    found = [_available(view), _progress(view, problem), _degraded(view, problem), _stuck(view.outlooks, view.counts)]
    return [msgspec.structs.replace(c, observed_generation=generation) for c in found]


def _condition(kind: str, holds: bool, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True" if holds else "False", reason=reason, message=cut(message))


def _available(view: _View) -> Condition:
    counts = view.counts
    available = counts.total > 0 and counts.ready == counts.total and not view.deleting
    text = f"{counts.ready} of {counts.total} nodes are ready"
    return _condition("Available", available, "AllNodesReady" if available else "NotAllNodesReady", text)


def _progress(view: _View, problem: Problem | None) -> Condition:
    counts, waiting = view.counts, view.waiting
    text = "; ".join(waiting[:3])
    if view.stopped:
        ending = f"; {_many(counts.updating)} still at work: what has begun ends" if counts.updating else ""
        return _condition("Progressing", False, STOPPED, view.stopped + ending)
    if view.deleting:
        return _condition(
            "Progressing",
            True,
            "Uninstalling",
            f"{_many(len(waiting))} to clean: {text or 'removing what is left'}",
        )
    if problem is not None and counts.updating == 0:
        return _condition("Progressing", False, problem.reason, "nothing is started; see condition Degraded")
    if counts.total == 0 and view.selected == 0:
        return _condition(
            "Progressing", False, "NoNodeSelected", "spec.nodeSelector matches no node that can take part"
        )
    if view.runtime.spec.paused:
        return _condition("Progressing", False, "Paused", why("Paused", view.runtime.metadata.name))
    if counts.updating == 0 and view.halted:
        halt = why(view.halted, view.runtime.metadata.name)
        return _condition("Progressing", False, view.halted, f"{_many(len(waiting))} not done: {halt}")
    if waiting or counts.total < view.selected:
        to_go = max(len(waiting), view.selected - counts.total)
        return _condition("Progressing", True, "RollingOut", f"{_many(to_go)} to go: {text or 'not begun'}")
    return _condition("Progressing", False, "Complete", "every node has this revision")


def _many(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _trouble(outlooks: Mapping[str, Outlook], refused: Mapping[str, Problem]) -> Problem | None:
    """The first node, by name, whose step was refused, or that cannot go on by itself."""
    for name in sorted(refused):
        return Problem(refused[name].reason, f"{name}: {refused[name].message}")
    for name in sorted(outlooks):
        trouble = outlooks[name].wait.trouble
        if trouble is not None:
            return Problem(trouble.reason, pointing(f"{name}: {trouble.message}", name))
    return None


def _degraded(view: _View, problem: Problem | None) -> Condition:
    if problem is not None:
        return _condition("Degraded", True, problem.reason, problem.message)
    if view.trouble is not None and not view.counts.failed:
        return _condition("Degraded", True, view.trouble.reason, view.trouble.message)
    bad = sorted(((n, o) for n, o in view.outlooks.items() if o.view.failed), key=lambda pair: pair[0])
    if bad:
        name, outlook = bad[0]
        error = outlook.state.error if outlook.state else None
        why = f"{error.reason}: {error.message}" if error else outlook.wait.message
        text = f"{_many(view.counts.failed)} failed; {name}: {why}"
        return _condition("Degraded", True, "NodesFailed", pointing(text, name))
    return _condition("Degraded", False, "AsExpected", "")


def with_problem(runtime: NodeRuntime, problem: Problem, now: datetime) -> NodeRuntimeStatus:
    """The status as it is, but Degraded for `problem`."""
    degraded = msgspec.structs.replace(
        _condition("Degraded", True, problem.reason, problem.message), observed_generation=runtime.metadata.generation
    )
    before = runtime.status.conditions
    others = tuple(c for c in before if c.type != degraded.type)
    return msgspec.structs.replace(runtime.status, conditions=(*others, _timed(degraded, before, now)))


def news(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> list[tuple[str, str, str]]:
    """Type, reason and note of the Events that tell of what has become wrong, and right again."""
    told = []
    for kind, bad in (("Degraded", _bad), ("Progressing", _bad_progress), (FOREIGN, _bad)):
        old, new = bad(condition(before, kind)), bad(condition(after, kind))
        if new is not None and (old is None or old.reason != new.reason):
            told.append(("Warning", new.reason, new.message))
        elif old is not None and new is None:
            told.append(("Normal", "Recovered", f"{old.reason} is over"))
    return told + _stop_news(condition(before, "Progressing"), condition(after, "Progressing"))


def _stop_news(old: Condition | None, new: Condition | None) -> list[tuple[str, str, str]]:
    was, now = (c is not None and c.reason == STOPPED for c in (old, new))
    if new is not None and now and not was:
        return [("Warning", STOPPED, new.message)]
    return [("Normal", "Resumed", "nothing is stopped any more")] if was and not now else []


def _bad(found: Condition | None) -> Condition | None:
    return found if found is not None and found.status == "True" else None


def _bad_progress(found: Condition | None) -> Condition | None:
    return found if found is not None and found.reason == "NoNodeSelected" else None


def _foreign(installers: Problem | list[tuple[str, str]], runtime: NodeRuntime) -> Condition | None:
    """As it was until somebody has looked."""
    if isinstance(installers, Problem):
        if installers.reason == "NotLooked":
            return condition(runtime.status.conditions, FOREIGN)
        return Condition(type=FOREIGN, status="Unknown", reason=installers.reason, message=cut(installers.message))
    if not installers:
        return _condition(FOREIGN, False, "NoneFound", "")
    return _condition(FOREIGN, True, FOREIGN, installers_message(installers))


def _stuck(outlooks: Mapping[str, Outlook], counts: NodeCounts) -> Condition:
    bad = sorted(((n, o) for n, o in outlooks.items() if o.view.stuck), key=lambda pair: pair[0])
    if not bad:
        return _condition("Stuck", False, "AsExpected", "")
    name, outlook = bad[0]
    text = f"{_many(counts.stuck)} stuck; {name}: {outlook.wait.message}"
    return _condition("Stuck", True, outlook.wait.reason, pointing(text, name))


def _failed(name: str, outlook: Outlook) -> FailedNode:
    error = outlook.wait.stuck or (outlook.state.error if outlook.state else None)
    stage = str(outlook.state.stage if outlook.state else Stage.ABSENT)
    if error is None:
        return FailedNode(node=name, stage=stage, reason=outlook.wait.reason, message=cut(outlook.wait.message))
    return FailedNode(node=name, stage=stage, reason=error.reason, message=cut(error.message))


def _timed(condition: Condition, before: tuple[Condition, ...], now: datetime) -> Condition:
    old = next((c for c in before if c.type == condition.type), None)
    same = old is not None and old.status == condition.status and old.last_transition_time is not None
    moment = old.last_transition_time if same and old is not None else now.replace(microsecond=0)
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        observed_generation=condition.observed_generation,
        last_transition_time=moment,
    )
