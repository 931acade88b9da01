"""Slots of nodes that rest: given back at once after work, and only after a while when nobody has seen any.

A slot is taken first and its node is patched right afterwards, so another replica that leads as well may hear of
the slot before it hears of the work. Would it give the slot back then, two nodes would work for one slot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from reconciler.phases.rollout import View

UNUSED_SECONDS = 2.0
"""From when a slot was first seen until its node counts as one that does not want it: a PATCH takes milliseconds."""


class Unused:
    """What is remembered of slots; a leader that knows nothing waits once."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, float]] = {}
        """By runtime, then by node: when its slot was first seen without work, in monotonic seconds."""
        self._worked: dict[str, set[str]] = {}
        """By runtime: nodes that were seen at work with the slot that they have."""

    def fresh(self, runtime: str, in_work: Collection[str], views: Mapping[str, View], now: float) -> dict[str, float]:
        """Nodes whose slots are kept although they rest → when that is over, in monotonic seconds."""
        since = {node: t for node, t in self._since.get(runtime, {}).items() if node in in_work}
        worked = self._worked.get(runtime, set()) & set(in_work)
        for node in in_work:
            view = views.get(node)
            if view is not None and not view.at_rest:
                worked.add(node)
                since.pop(node, None)
            elif view is not None and node not in worked:
                since.setdefault(node, now)
        self._since[runtime], self._worked[runtime] = since, worked
        return {node: t + UNUSED_SECONDS for node, t in since.items() if now < t + UNUSED_SECONDS}

    def forget(self, runtime: str) -> None:
        self._since.pop(runtime, None)
        self._worked.pop(runtime, None)
