"""Which nodes may work (design sections 3 and 4): slots, canary, error budget, order. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from reconciler.api.noderuntime import IntOrPercent, Rollout


@dataclass(frozen=True, kw_only=True)
class View:
    """One node as the rollout sees it."""

    node: str
    at_rest: bool
    wants_slot: bool = False
    """Only a slot is missing for its next step."""
    stuck: bool = False
    node_ready: bool = True
    failed: bool = False
    """Given up on at the present revision."""
    done: bool = False
    """Ready at the present revision."""
    removal: bool = False
    """What it wants is to get rid of the runtime."""
    repair: bool = False
    """It was ready at the present revision and has lost something."""
    rank: int = 0
    """Place in `rollout.order`; lower first. Control planes and the controller's own node rank last."""


@dataclass(frozen=True)
class Admission:
    """Who holds a slot from now on, and what keeps the others waiting."""

    in_work: tuple[str, ...]
    halted: str = ""
    """Reason in CamelCase: Stopped, ErrorBudgetExceeded, Paused, CanaryPaused, Canary; empty when nothing does."""


def count_of(value: IntOrPercent, total: int, *, at_least: int) -> int:
    """A count, or a percentage of `total` rounded down, but `at_least`."""
    if isinstance(value, int):
        return max(value, at_least)
    return max(math.floor(total * int(value.rstrip("%")) / 100), at_least)


def budget(rollout: Rollout, total: int) -> int:
    """Nodes of `total` that may be in trouble; one more halts the rollout."""
    return count_of(rollout.error_budget, total, at_least=0)


def spent(views: Iterable[View]) -> int:
    """Nodes that count against the error budget."""
    return sum(1 for v in views if v.failed or v.stuck or (not v.at_rest and not v.node_ready))


def admit(
    views: Iterable[View],
    in_work: Iterable[str],
    rollout: Rollout,
    *,
    paused: bool,
    stopped: bool = False,
    unused: Collection[str] = (),
) -> Admission:
    """Give back the slots of nodes that rest, are stuck or NotReady; hand free ones to those whose turn it is.

    Who gave its slot back and works again (it is Ready by now, say) is one of those at work, too.
    `unused`: nodes that have just got theirs, and whose work may not have been heard of yet.
    """
    nodes = {view.node: view for view in views}
    kept = [name for name in dict.fromkeys(in_work) if name in nodes and _keeps(nodes[name], name in unused)]
    slotless = [v.node for v in nodes.values() if v.node not in kept and not v.wants_slot and _keeps(v, unused=False)]
    waiting = sorted(
        (v for v in nodes.values() if v.wants_slot and v.node not in kept),
        key=lambda v: (v.at_rest, v.rank, v.node),
    )
    limit = count_of(rollout.max_unavailable, len(nodes), at_least=1)
    over_budget = spent(nodes.values()) > budget(rollout, len(nodes))
    canaries = _canaries_left(nodes.values(), {*kept, *slotless}, rollout)
    if stopped:
        return Admission(tuple(kept), "Stopped")
    halted = ""
    for view in waiting:
        starts = view.at_rest
        if paused and starts:
            halted = halted or "Paused"
            continue
        fresh = starts and not view.removal and not view.repair
        if fresh and over_budget:
            halted = halted or "ErrorBudgetExceeded"
            continue
        if fresh and canaries is not None and canaries <= 0:
            halted = halted or ("CanaryPaused" if _canaries_done(nodes.values(), rollout) else "Canary")
            continue
        if len(kept) + len(slotless) >= limit:
            continue
        kept.append(view.node)
        if fresh and canaries is not None:
            canaries -= 1
    return Admission(tuple(kept), halted)


def _keeps(view: View, unused: bool) -> bool:
    if view.stuck or not view.node_ready:
        return False
    return view.wants_slot or not view.at_rest or unused


def _canaries_done(nodes: Iterable[View], rollout: Rollout) -> bool:
    return sum(1 for v in nodes if v.done) >= rollout.canary.count


def _canaries_left(nodes: Iterable[View], working: Collection[str], rollout: Rollout) -> int | None:
    """How many canaries may still begin; None when canaries hold nobody back any more."""
    views = list(nodes)
    if rollout.canary.count <= 0:
        return None
    if _canaries_done(views, rollout) and not rollout.canary.pause:
        return None
    begun = sum(1 for v in views if v.done or v.failed or (v.node in working and not v.removal and not v.repair))
    return rollout.canary.count - begun
