"""Makes a plan that fails as short as it can be: fewer faults, fewer nodes, controllers and runtimes, less time.

Delta debugging (Zeller and Hildebrandt, 2002) on the list of faults: it can be cut anywhere, because each draws from a
generator of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tests.soak.plans import Plan, Step

PLAYS = 150
"""Most plays for one plan."""

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, *, plays: int = PLAYS) -> Plan:
    """The smallest plan found that still `fails`; `plan` itself is known to."""
    budget = iter(range(plays))

    def holds(smaller: Plan) -> bool:
        return next(budget, None) is not None and fails(smaller)

    while True:
        found = _fewer_steps(plan, holds)
        found = next((less for less in _lesser(found) if holds(less)), found)
        if found == plan:
            return found
        plan = found


def _fewer_steps(plan: Plan, holds: Fails) -> Plan:
    """Leave out halves, quarters, … and at last single steps."""
    size = max(1, len(plan.steps) // 2)
    while plan.steps:
        for steps in _without(plan.steps, size):
            smaller = msgspec.structs.replace(plan, steps=steps)
            if holds(smaller):
                plan = smaller
                break
        else:
            if size == 1:
                return plan
            size = max(1, size // 2)
    return plan


def _without(steps: tuple[Step, ...], size: int) -> Iterator[tuple[Step, ...]]:
    for begin in range(0, len(steps), size):
        yield steps[:begin] + steps[begin + size :]


def _lesser(plan: Plan) -> Iterator[Plan]:
    """A smaller cluster, one without a wire, or a run that ends sooner."""
    if plan.over != "memory":
        yield msgspec.structs.replace(plan, over="memory")
    if len(plan.runtimes) > 1:
        yield msgspec.structs.replace(plan, runtimes=plan.runtimes[:1])
    for nodes in range(1, plan.nodes):
        yield msgspec.structs.replace(plan, nodes=nodes)
    if plan.controllers > 1:
        yield msgspec.structs.replace(plan, controllers=1)
    end = plan.steps[-1].at + 1 if plan.steps else 0.0
    if end < plan.seconds - 60:
        yield msgspec.structs.replace(plan, seconds=end)
