"""Whom of ours a fault between us and the API server hits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.sim.faults.registry import World
from reconciler.sim.link import Link
from reconciler.sim.requests import Request

OURS = ("controller:", "agent:")
"""How the users of our own processes begin."""
Chosen = Callable[[Request], bool]


@dataclass(frozen=True)
class Victim:
    """All of ours, or one process."""

    user: str
    """As the audit has it; "" for all of ours."""

    def sent(self, request: Request) -> bool:
        return request.user == self.user if self.user else request.user.startswith(OURS)

    def __str__(self) -> str:
        return self.user or "all of ours"


ALL = Victim("")


def links(world: World) -> dict[str, Link]:
    """User → link of each of our processes, controllers first."""
    found = {f"controller:{replica.identity}": replica.link for replica in world.cluster.replicas}
    return found | {f"agent:{name}": node.agent_link for name, node in sorted(world.cluster.nodes.items())}


def some(world: World, rng: random.Random) -> Victim:
    """All of ours as often as one process."""
    return ALL if rng.random() < 0.5 else one(world, rng)


def one(world: World, rng: random.Random) -> Victim:
    """A controller as often as an agent, the leader as often as another one."""
    leader = world.cluster.leader
    controllers = [f"controller:{replica.identity}" for replica in world.cluster.replicas]
    agents = [f"agent:{name}" for name in sorted(world.cluster.nodes)]
    if leader is not None and rng.random() < 0.25:
        return Victim(f"controller:{leader.identity}")
    groups = [group for group in (controllers, agents) if group]
    return Victim(rng.choice(rng.choice(groups)))


def hit(world: World, victim: Victim) -> list[Link]:
    return [link for user, link in links(world).items() if victim.user in ("", user)]
