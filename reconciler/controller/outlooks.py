"""What a look at one runtime on one node comes to, for those who act on it and for those who only look.

Reads stores only; no IO.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from reconciler.api import names
from reconciler.api.meta import Node
from reconciler.api.node import REST, NodeState, Problem, Stage
from reconciler.api.noderuntime import NodeRuntime, UnreadableNodeRuntime, revision_data, revision_hash
from reconciler.controller import goals, problems, rows
from reconciler.controller.world import Outlook, World, states
from reconciler.phases.decide import decide
from reconciler.phases.decision import AskUse, Decision, EndPod, MakePod, Move, Signal, Wait
from reconciler.phases.facts import Facts, Goal
from reconciler.phases.rollout import Admission, View, admit


def note(
    world: World, node: Node, name: str, facts: Facts, wait: Wait, now: datetime, *, own_node: str = ""
) -> tuple[Outlook | None, Outlook | None]:
    """Remember what a look has come to; the outlook before it and the one after it."""
    owner = world.runtime(name)
    where = node.metadata.name
    after = None if owner is None else _outlook(owner, node, facts, wait, own_node)
    by_node = world.outlooks.setdefault(name, {})
    before = by_node.pop(where, None)
    if after is not None:
        by_node[where] = after
    if after is None and facts.state is None:
        world.forget_row(name, where)
    else:
        row = rows.build(world, node, name, facts, wait, None if after is None else after.view, now)
        world.rows.setdefault(name, {})[where] = row
    return before, after


def step(world: World, node: Node, name: str, facts: Facts, decision: Decision, *, own_node: str = "") -> None:
    """Before a step is sent: from now on the node counts as touched, and as at work when it is or is to be, whatever
    becomes of the write. The rest of what the last look came to stays."""
    owner = world.runtime(name)
    if owner is None:
        return
    by_node = world.outlooks.setdefault(name, {})
    known = by_node.get(node.metadata.name)
    known = known or _outlook(owner, node, facts, _as_wait(decision, facts.state), own_node)
    if known is None:
        return
    wanted = decision.state if isinstance(decision, Move) else None
    works = any(state is not None and state.stage not in REST for state in (facts.state, wanted))
    view = replace(known.view, at_rest=not works)
    by_node[node.metadata.name] = replace(known, view=view, state=wanted or facts.state)


def outdate(world: World, present: Goal, name: str) -> None:
    """What was seen with another revision in mind, or another NodeRuntime of that name, says nothing of this one: until
    it is looked at again, a node has neither reached it nor failed at it, and is nobody's canary."""
    by_node = world.outlooks.get(name, {})
    for where, known in by_node.items():
        view = known.view
        if known.goal.revision and known.goal != present and (view.done or view.failed):
            view = replace(view, done=False, failed=False, repair=False)
            by_node[where] = replace(known, view=view, wait=_step("RevisionChanged", "not looked at since"))


def unreadable(world: World, node: Node, name: str) -> bool:
    """Remember that what a Node says of a runtime cannot be read: it is stuck and not ready. Whether that is new."""
    world.rows.setdefault(name, {})[node.metadata.name] = rows.unreadable(world, node, name)
    if world.runtime(name) is None:
        return False
    problem = Problem("StateUnreadable", f"annotation {names.state_annotation(name)} cannot be read")
    wait = Wait(reason=problem.reason, awaits=Signal.PERSON, message=problem.message, stuck=problem)
    by_node = world.outlooks.setdefault(name, {})
    before = by_node.get(node.metadata.name)
    view = replace(before.view, wants_slot=False, done=False) if before else View(node=node.metadata.name, at_rest=True)
    state = None if before is None else before.state
    after = Outlook(view=replace(view, stuck=True), wait=wait, state=state, counted=True)
    by_node[node.metadata.name] = after
    return before != after


def survey(world: World, now: datetime) -> Iterator[str]:
    """Look at every node as the controller would, and do nothing; gives each name, so that one can pause between.

    For a World that nobody acts on: a standby's, or the command line's.
    """
    for runtime in world.runtimes.list():
        problem = problems.found(world, runtime)
        world.problems.pop(runtime.metadata.name, None)
        if problem is not None:
            world.problems[runtime.metadata.name] = problem
    world.seen = {node.metadata.name for node in world.nodes.list()}
    for known in {where for by_node in world.rows.values() for where in by_node} - world.seen:
        world.forget_node(known)
    for node in world.nodes.list():
        runtimes = goals.runtimes_of(world, node)
        world.forget_others(node.metadata.name, runtimes)
        for name in runtimes:
            look(world, node, name, now)
        yield node.metadata.name


def look(
    world: World,
    node: Node,
    name: str,
    now: datetime,
    *,
    in_use: Mapping[str, tuple[str, ...]] | None = None,
) -> Facts | None:
    """What would be done next with runtime `name` on `node`; None when its state cannot be read."""
    found = states(node)
    if name in found and found[name] is None:
        unreadable(world, node, name)
        return None
    state = found.get(name)
    facts = goals.facts_for(world, node, name, state, now, in_use=in_use)
    note(world, node, name, facts, _as_wait(decide(facts, now), state), now)
    return facts


def admission(world: World, runtime: NodeRuntime, fresh: Collection[str] = ()) -> Admission:
    """Slots from now on; as they are until every node has been looked at since we lead.

    `fresh`: nodes whose slots are too new to be given back.
    """
    if any(node.metadata.name not in world.seen for node in world.nodes.list()):
        return Admission(runtime.status.in_work, "LeaderChanged")
    outlooks = world.outlooks.get(runtime.metadata.name, {})
    views = (outlook.view for outlook in outlooks.values())
    return admit(
        views,
        runtime.status.in_work,
        runtime.spec.rollout,
        paused=runtime.spec.paused,
        stopped=world.stopping.words != "",
        unused=fresh,
    )


def _outlook(owner: NodeRuntime, node: Node, facts: Facts, wait: Wait, own_node: str) -> Outlook | None:
    state, goal = facts.state, facts.goal
    selected = goals.selects(owner, node)
    if state is None and not selected and not wait.wants_slot:
        return None
    rests = state is not None and state.stage is Stage.READY and state.installed == goal.revision
    done = rests and _is_present(owner, goal.revision)
    view = View(
        node=node.metadata.name,
        at_rest=state is None or state.stage in REST,
        wants_slot=wait.wants_slot,
        stuck=wait.stuck is not None,
        node_ready=facts.node_ready,
        failed=state is not None and state.failed != "" and state.failed == goal.revision,
        done=done,
        removal=goal.revision == "",
        repair=rests,
        rank=goals.rank(owner, node, own_node),
    )
    counted = state is not None or (selected and wait.reason != "SetAside")
    plan = facts.plans.get(state.installed) if state is not None and rests else None
    lost = plan is not None and facts.serving and not plan.handlers <= facts.served
    return Outlook(view=view, wait=wait, state=state, counted=counted, lost=lost, goal=goal)


def _is_present(owner: NodeRuntime, revision: str) -> bool:
    """Whether the rollout is about that revision: the goal of a node that is held back is whatever the node has."""
    if revision == owner.status.revision:
        return True
    return not isinstance(owner, UnreadableNodeRuntime) and revision == revision_hash(revision_data(owner.spec))


def _as_wait(decision: Decision, state: NodeState | None) -> Wait:
    """A step that is to be taken is, for who does not take it, a wait for the controller."""
    match decision:
        case Wait():
            return decision
        case AskUse() if state is not None and state.draining:
            return Wait(
                reason="HandlerInUse",
                awaits=Signal.USERS_GONE,
                message="running pods used its handlers at the last look",
            )
        case AskUse():
            return _step("AskUse", "the next step is to ask which pods use its handlers")
        case Move(reason=reason, message=message):
            to = Stage.ABSENT if decision.state is None else decision.state.stage
            return _step(reason, f"the next step is stage {to}" + (f": {message}" if message else ""))
        case MakePod(wanted):
            return _step("MakePod", f"the next step is to make the pod of {wanted.stage}, attempt {wanted.attempt}")
        case EndPod(_, stage, _):
            return _step("EndPod", f"the next step is to delete the pod of {stage}")


def _step(reason: str, message: str) -> Wait:
    return Wait(reason=reason, awaits=Signal.CONTROLLER, message=message)
