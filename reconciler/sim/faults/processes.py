"""Our own processes are killed or kept away. Whoever runs them starts them again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from reconciler.sim.clock import VirtualLoop
from reconciler.sim.cluster import Replica
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.life import CURRENT, Killed, Life
from reconciler.sim.node import SimNode
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

PATIENCE = 60.0
"""Seconds that a kill lies in wait for its moment."""
LOOK = 0.02
AWAITS = (1, 3_000)
"""Of an agent at work; a controller takes as many in a stage of some nodes."""
FIRST_AWAITS = (1, 300)
WRITES = (1, 8)
STEPS = (1, 30)
"""By which an agent changes the disk or the unit: a change has about 20."""
AWAY_SECONDS = (20.0, 300.0)


@dataclass(frozen=True)
class Process:
    """One of ours: who it is to the API server, its present life, and how it dies."""

    user: str
    life: Callable[[], Life]
    kill: Callable[[], None]


def of_node(node: SimNode) -> Process:
    return Process(f"agent:{node.name}", lambda: node.life, node.crash_agent)


def of_replica(replica: Replica, *, same_pod: bool) -> Process:
    user = f"controller:{replica.identity}"
    return Process(user, lambda: replica.life, lambda: replica.kill(same_pod=same_pod))


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
        leader.kill(same_pod=rng.random() < 0.5)


@fault("standby", once=True)
async def standby(world: World, rng: random.Random) -> None:
    """A controller that does not lead is killed."""
    others = [replica for replica in world.cluster.replicas if not replica.leads]
    if others:
        chosen = rng.choice(others)
        world.say(f"standby: {chosen.identity} is killed")
        chosen.kill(same_pod=rng.random() < 0.5)


@fault("agent-at-await", once=True)
async def agent_at_await(world: World, rng: random.Random) -> None:
    """An agent is killed at any of its awaits."""
    await _at_await(world, "agent-at-await", of_node(world.some_node(rng)), _about(rng, AWAITS))


@fault("controller-at-await", once=True)
async def controller_at_await(world: World, rng: random.Random) -> None:
    """A controller is killed at any of its awaits."""
    await _at_await(world, "controller-at-await", _some_controller(world, rng), _about(rng, AWAITS))


@fault("agent-at-write", once=True)
async def agent_at_write(world: World, rng: random.Random) -> None:
    """An agent is killed as it writes to the API server: the write is lost, or done and not answered."""
    await _at_write(world, rng, "agent-at-write", of_node(world.some_node(rng)))


@fault("controller-at-write", once=True)
async def controller_at_write(world: World, rng: random.Random) -> None:
    """A controller is killed as it writes to the API server: the write is lost, or done and not answered."""
    await _at_write(world, rng, "controller-at-write", _some_controller(world, rng))


@fault("agent-at-step", once=True)
async def agent_at_step(world: World, rng: random.Random) -> None:
    """An agent is killed in the middle of a change of containerd's configuration."""
    node, left, over = world.some_node(rng), rng.randint(*STEPS), asyncio.Event()

    def step(what: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            world.say(f"agent-at-step: that of {node.name} is killed before {what}")
            over.set()
            node.crash_agent()
            raise Killed

    node.on_step.append(step)
    try:
        await _within(PATIENCE, over)
    finally:
        node.on_step.remove(step)


@fault("agent-twice", once=True)
async def agent_twice(world: World, rng: random.Random) -> None:
    """An agent is killed, and soon after its start again."""
    await _twice(world, rng, "agent-twice", of_node(world.some_node(rng)))


@fault("controller-twice", once=True)
async def controller_twice(world: World, rng: random.Random) -> None:
    """A controller is killed, and soon after its start again."""
    await _twice(world, rng, "controller-twice", _some_controller(world, rng))


@fault("controllers-away", once=True)
async def controllers_away(world: World, rng: random.Random) -> None:
    """All controllers are away for minutes."""
    replicas, seconds = tuple(world.cluster.replicas), rng.uniform(*AWAY_SECONDS)
    world.say(f"controllers-away: all, for {seconds:.0f} s")
    for replica in replicas:
        replica.hold()
    try:
        await asyncio.sleep(seconds)
    finally:
        for replica in replicas:
            replica.release()


@fault("agent-away", once=True)
async def agent_away(world: World, rng: random.Random) -> None:
    """An agent is away for minutes: its pod is not Ready."""
    node, seconds = world.some_node(rng), rng.uniform(*AWAY_SECONDS)
    world.say(f"agent-away: that of {node.name}, for {seconds:.0f} s")
    node.hold_agent()
    try:
        await asyncio.sleep(seconds)
    finally:
        node.release_agent()


@fault("agent-withdrawn", once=True)
async def agent_withdrawn(world: World, rng: random.Random) -> None:
    """An agent's pod is gone for minutes."""
    node, seconds = world.some_node(rng), rng.uniform(*AWAY_SECONDS)
    world.say(f"agent-withdrawn: that of {node.name}, for {seconds:.0f} s")
    try:
        async with asyncio.timeout(seconds):
            await node.withdraw_agent()
            await asyncio.sleep(seconds)
    except TimeoutError:
        pass  # also while nobody could be asked to delete the pod
    finally:
        node.release_agent()


def _some_controller(world: World, rng: random.Random) -> Process:
    """The leader more often than another one; in the same pod again, or in another."""
    leader, same_pod = world.cluster.leader, rng.random() < 0.5
    chosen = rng.choice(world.cluster.replicas)
    return of_replica(leader if leader is not None and rng.random() < 0.5 else chosen, same_pod=same_pod)


def _about(rng: random.Random, span: tuple[int, int]) -> int:
    """A number in `span`, spread by its logarithm: the first ones count most."""
    least, most = span
    return int(least * (most / least) ** rng.random())


async def _at_await(world: World, name: str, process: Process, number: int) -> None:
    def kill() -> None:
        world.say(f"{name}: {process.user} is killed at await {number}")
        process.kill()

    await at_await(process.life(), number, kill)


async def at_await(life: Life, number: int, kill: Callable[[], None]) -> None:
    """`kill` is called when the `number`-th step of `life` from now on is due, if that is soon."""
    loop, over, left = asyncio.get_running_loop(), asyncio.Event(), number
    if not isinstance(loop, VirtualLoop):
        return

    def step(context: Context) -> None:
        nonlocal left
        if over.is_set() or context.get(CURRENT) is not life:
            return
        left -= 1
        if left == 0:
            over.set()
            kill()

    loop.on_step.append(step)
    try:
        await _within(PATIENCE, over)
    finally:
        loop.on_step.remove(step)


async def _at_write(world: World, rng: random.Random, name: str, process: Process) -> None:
    left, done, over = _about(rng, WRITES), rng.random() < 0.5, asyncio.Event()

    def befalls(request: Request) -> Trouble | None:
        nonlocal left
        if request.user != process.user or request.method == "GET" or over.is_set():
            return None
        left -= 1
        if left:
            return None
        over.set()
        how = "done, not answered" if done else "lost"
        world.say(f"{name}: {process.user} is killed at {request.method} {request.path} ({how})")
        process.kill()
        return Trouble(drop_after=True) if done else Trouble(drop_before=True)

    with world.cluster.server.knobs.troubled(befalls):
        await _within(PATIENCE, over)


async def _twice(world: World, rng: random.Random, name: str, process: Process) -> None:
    first = process.life()
    world.say(f"{name}: {process.user} is killed")
    process.kill()
    end = asyncio.get_running_loop().time() + PATIENCE
    while process.life() is first:
        if asyncio.get_running_loop().time() > end:
            return
        await asyncio.sleep(LOOK)
    await _at_await(world, name, process, _about(rng, FIRST_AWAITS))


async def _within(seconds: float, over: asyncio.Event) -> None:
    """Until it is over, or has not come."""
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return
