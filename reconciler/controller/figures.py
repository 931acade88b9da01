"""What a scrape of the controller shows, read from what is seen of the nodes at that moment. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from metrics.controller import HELD_REASONS, RuntimeFigures, TroubledNode
from reconciler.api.node import Stage
from reconciler.api.noderuntime import NodeRuntime
from reconciler.controller.outlooks import admission
from reconciler.controller.world import Outlook, World
from reconciler.phases.rollout import budget, spent


def runtimes(world: World, now: datetime) -> Mapping[str, RuntimeFigures]:
    """By name of the NodeRuntime."""
    found = {}
    for name, by_node in world.outlooks.items():
        runtime = world.runtime(name)
        if runtime is not None:
            found[name] = _figures(world, runtime, by_node, now)
    return found


def troubled(world: World, now: datetime) -> Iterator[TroubledNode]:
    """Nodes that are stuck or failed, in any order."""
    for name, by_node in world.outlooks.items():
        for node, outlook in by_node.items():
            view = outlook.view
            if view.stuck or view.failed:
                since = now if outlook.state is None else outlook.state.since
                yield TroubledNode(
                    runtime=name,
                    node=node,
                    stage=_stage(outlook),
                    state="stuck" if view.stuck else "failed",
                    seconds=max((now - since).total_seconds(), 0.0),
                )


def _figures(world: World, runtime: NodeRuntime, by_node: Mapping[str, Outlook], now: datetime) -> RuntimeFigures:
    views = [o.view for o in by_node.values()]
    counted = {node: o for node, o in by_node.items() if o.counted}
    return RuntimeFigures(
        stages=Counter(_stage(o) for o in counted.values()),
        total=len(counted),
        done=sum(1 for o in counted.values() if _done(o)),
        ready=sum(1 for o in counted.values() if o.serves),
        updating=sum(1 for o in counted.values() if not o.view.at_rest),
        stuck=sum(1 for v in views if v.stuck),
        failed=sum(1 for v in views if v.failed),
        agentless=sum(1 for node in counted if node in world.agent_lost),
        repairs=sum(_repairs(o, now) for o in counted.values()),
        budget=budget(runtime.spec.rollout, len(views)),
        spent=spent(views),
        held=_held(world, runtime),
    )


def _stage(outlook: Outlook) -> str:
    return str(outlook.state.stage if outlook.state else Stage.ABSENT)


def _done(outlook: Outlook) -> bool:
    return outlook.state is None if outlook.view.removal else outlook.serves


def _repairs(outlook: Outlook, now: datetime) -> int:
    times = () if outlook.state is None else outlook.state.repairs
    return sum(1 for time in times if now - time < timedelta(hours=1))


def _held(world: World, runtime: NodeRuntime) -> str:
    """Why nothing new starts. A canary that is still at work is the rollout's own pace, and holds nothing."""
    if world.stopping.words:
        return "Stopped"
    if runtime.metadata.name in world.problems:
        return "Problem"
    halted = admission(world, runtime).halted
    return halted if halted in HELD_REASONS else ""
