"""A fault has a name; one occurrence of it is a coroutine, and when that ends, all that it bent is straight again.

What an occurrence hits is drawn from the generator that it is given and from nothing else. So a run is told by
a list of (when, which fault, seed), and each entry can be left out without changing what the others draw.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster, Foreign
from reconciler.sim.kinds import Object
from reconciler.sim.loops import RUNTIME
from reconciler.sim.node import SimNode


class UnknownFault(ValueError):
    """A name that is not in FAULTS."""


@dataclass
class World:
    """What faults may touch."""

    cluster: Cluster
    say: Callable[[str], None] = lambda line: None
    """Called with a line for the timeline when something was done: what, and to whom."""
    bodies: Callable[[str, random.Random], Object] | None = None
    """The NodeRuntime of a name, some other one at each call: what an admin may apply. None: nobody does."""

    names: tuple[str, ...] = (RUNTIME,)
    """NodeRuntimes that an admin may create."""

    @property
    def foreign(self) -> list[Foreign]:
        """What stands at the moment and must survive us."""
        return self.cluster.foreign

    def some_living(self, rng: random.Random, fits: Callable[[SimNode], bool] = lambda node: True) -> SimNode | None:
        """One of the nodes that have power and fit."""
        nodes = (self.cluster.nodes[name] for name in sorted(self.cluster.nodes))
        found = [node for node in nodes if self.cluster.is_on(node.name) and fits(node)]
        return rng.choice(found) if found else None

    def some_node(self, rng: random.Random) -> SimNode:
        return self.cluster.nodes[rng.choice(sorted(self.cluster.nodes))]

    def runtimes(self) -> list[str]:
        """Names of the NodeRuntimes that there are now."""
        return [name for (_, name), _ in self.cluster.server.store.all(kinds.NODERUNTIMES)]


Cause = Callable[[World, random.Random], Coroutine[Any, Any, None]]
"""Cancelled, it mends what it bent before it ends."""


@dataclass(frozen=True)
class Fault:
    """One kind of trouble."""

    name: str
    cause: Cause
    once: bool
    """Not offered by `reconciler simulate`: it changes what its loops wait for."""

    @property
    def meaning(self) -> str:
        return (self.cause.__doc__ or "").strip().splitlines()[0].rstrip(".")


FAULTS: dict[str, Fault] = {}
"""Every fault by its name."""


def fault(name: str, *, once: bool = False) -> Callable[[Cause], Cause]:
    """Registers the decorated coroutine function; its docstring's first line says what it does."""

    def register(cause: Cause) -> Cause:
        FAULTS[name] = Fault(name, cause, once)
        return cause

    return register


@dataclass
class Injector:
    """Causes the faults that were asked for while `run` goes on, and counts them."""

    cluster: Cluster
    faults: tuple[str, ...]
    """Names of FAULTS."""
    rng: random.Random
    pace: float = 1.0
    """Mean seconds between the end of one and the next of its kind."""
    caused: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in self.faults:
                tasks.create_task(self._again_and_again(FAULTS[name]))

    async def _again_and_again(self, which: Fault) -> None:
        world = World(self.cluster, say=lambda line: self.caused.update([which.name]))
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.pace)
            await which.cause(world, self.rng)


def parse(text: str) -> tuple[str, ...]:
    """`a,b` → names; `all` → every one that fits beside the loops; `none` or "" → nothing. Raises UnknownFault."""
    chosen: Iterable[str] = [part.strip() for part in text.split(",") if part.strip()]
    offered = tuple(name for name, which in FAULTS.items() if not which.once)
    if list(chosen) == ["all"]:
        return offered
    if list(chosen) in ([], ["none"]):
        return ()
    unknown = sorted(set(chosen) - set(offered))
    if unknown:
        raise UnknownFault(f"no such fault: {', '.join(unknown)}; there are {', '.join(sorted(offered))}")
    return tuple(chosen)
