"""Our own processes are killed. Whoever runs them starts them again."""

from __future__ import annotations

import random

from reconciler.sim.faults.registry import World, fault


@fault("agent")
async def agent(world: World, rng: random.Random) -> None:
    """An agent is killed."""
    node = world.some_node(rng)
    world.say(f"agent: that of {node.name} is killed")
    node.crash_agent()


@fault("controller")
async def controller(world: World, rng: random.Random) -> None:
    """The leading controller is killed."""
    leader = world.cluster.leader
    if leader is not None:
        world.say(f"controller: {leader.identity} leads and is killed")
        leader.kill()
