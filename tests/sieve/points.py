"""Every point of a recorded run at which one of the patterns can be tried; each has a name by which it is run alone."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reconciler.api import names
from reconciler.sim.kinds import Object
from tests.sieve.faults import Crash, Fault, Lag, Side, Swallow
from tests.sieve.run import CONTROLLER, Record, run
from tests.sieve.stories import STORIES, Story

PATTERNS = ("intermediate", "stale", "unobserved")
BEHIND = (1, 2, 5, 20)
"""Events that a stale cache lags behind."""
READS = ("cri containers", "cri sandboxes", "cri status", "cri version", "systemd unit", "systemd watch")
"""They change nothing: the moment right after one is the moment before the next step."""
WATCHED = ("nodes", "pods", "noderuntimes", "controllerrevisions", "runtimeclasses")
"""Of the controller, of those that change in a story. An agent watches its own Node and the pods on it."""


@dataclass(frozen=True)
class Point:
    """`name`: pattern/story/process/…"""

    name: str
    fault: Fault

    @property
    def pattern(self) -> str:
        return self.name.partition("/")[0]


def tried(point: Point) -> tuple[Point, Record]:
    """Run one point; of the record only what is to be told is kept, for it may go to another process."""
    logging.getLogger().addHandler(logging.NullHandler())  # what processes say of their faults is no news here
    fault = copy.deepcopy(point.fault)
    record = run(STORIES[point.name.split("/")[1]], fault)
    merged = isinstance(fault, Swallow) and fault.merged
    return point, replace(record, steps=[], changes=[], merged=merged)


def of(story: Story, record: Record) -> Iterator[Point]:
    """All of them, in the order of the run within each pattern."""
    actors = (CONTROLLER, *(f"agent:node-{number}" for number in range(1, story.nodes + 1)))
    yield from _crashes(story, record)
    for actor in actors:
        yield from _lags(story, record, actor)
        yield from _swallows(story, record, actor)


def _crashes(story: Story, record: Record) -> Iterator[Point]:
    """Between any two steps of a process: before each, and after each that changes something."""
    for step in record.steps:
        sides = [Side.BEFORE]
        if step.done and step.what not in READS:
            sides.append(Side.AFTER)
        if step.what == "disk write":
            sides.append(Side.HALF)
        for side in sides:
            name = f"intermediate/{story.name}/{step.actor}/{step.number}/{side}"
            yield Point(name, Crash(step.actor, step.number, side, step.what))


def _lags(story: Story, record: Record, actor: str) -> Iterator[Point]:
    """From each version on that the process sees: one kind, or all, and with or without a restart."""
    lagging = ("all", *(WATCHED[:4] if actor == CONTROLLER else WATCHED[:2]))
    for moment in _seen(record, actor):
        for kind in lagging:
            kinds = frozenset() if kind == "all" else frozenset({kind})
            for behind in BEHIND:
                for restart in (True, False):
                    name = f"stale/{story.name}/{actor}/{moment}/{kind}/{behind}/{'restart' if restart else 'living'}"
                    yield Point(name, Lag(actor, moment, kinds, behind, restart))


def _swallows(story: Story, record: Record, actor: str) -> Iterator[Point]:
    """Two, then three consecutive changes of one object as one."""
    seen = _seen(record, actor)
    at = {version: (kind, event.key) for version, kind, event in record.changes}
    for index, moment in enumerate(seen):
        later = sum(1 for version in seen[index + 1 :] if at[version] == at[moment])
        for count in (1, 2):
            if later >= count:
                yield Point(f"unobserved/{story.name}/{actor}/{moment}/{count}", Swallow(actor, moment, count))


def _seen(record: Record, actor: str) -> list[int]:
    """Versions of what `actor` watches."""
    node = "" if actor == CONTROLLER else actor.partition(":")[2]
    return [
        version
        for version, kind, event in record.changes
        if kind.plural in WATCHED and (not node or _on(node, kind.plural, event.last.object))
    ]


def _on(node: str, plural: str, obj: Object) -> bool:
    if plural == "nodes":
        return bool(obj["metadata"]["name"] == node)
    ours = (obj["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) is not None
    return plural == "pods" and ours and obj["spec"].get("nodeName") == node
