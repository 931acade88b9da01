"""What an agent's step on the disk does to a configuration, seen from both sides of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

from reconciler.sim import config
from reconciler.sim.config import Loaded
from reconciler.sim.invariants.base import Invariant, Surroundings
from reconciler.sim.invariants.daemons import COMMITS
from reconciler.sim.node import SimNode

Seen = TypeVar("Seen")


class AroundCommits(Invariant, Generic[Seen]):
    """Looks right before each step that puts other bytes in force, and right after it, when nobody else could write.

    Not where the configuration would not start: there the guard puts back what was proven. Only in virtual time:
    elsewhere somebody else may write in between.
    """

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._under_way: dict[SimNode, tuple[str, Seen]] = {}

    def before(self, node: SimNode, loaded: Loaded) -> Seen:
        """What `after` needs to know."""
        raise NotImplementedError

    def after(self, node: SimNode, step: str, before: Seen) -> None:
        raise NotImplementedError

    def traced(self, node: SimNode, step: str) -> Iterator[str]:
        self._compare(node)
        if step.startswith(COMMITS):
            loaded = config.load(node.root)
            if not loaded.error and not loaded.cri_error:
                self._under_way[node] = step, self.before(node, loaded)
                asyncio.get_running_loop().call_soon(self._compare, node)
        yield from self.ticked()

    def _compare(self, node: SimNode) -> None:
        """Once for each step: at the next one, or as soon as the agent lets others have their turn."""
        if node in self._under_way:
            self.after(node, *self._under_way.pop(node))
