"""What befalls single requests of ours to the API server."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

from reconciler.sim.failures import ApiFailure
from reconciler.sim.faults import victims
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.requests import Request, target
from reconciler.sim.server import Trouble

WINDOW_SECONDS = (2.0, 10.0)
ODDS = (0.05, 0.3)
"""Of each request in a window that it is troubled: drawn once for the window, spread by its logarithm."""
CONFLICT_ODDS = 0.5
NO_ANSWER = 90.0
"""Seconds: longer than any client waits."""
SLOW_LIST = (0.5, 20.0)
"""Seconds; informers wait for 30."""
RETRY_AFTER = (1, 1, 2, 10)
"""Seconds: what priority and fairness asks for (1), and more than the client waits by itself (5)."""
PAGES = (1, 3)
KINDS_OF_500 = ("etcdserver: leader changed", "etcdserver: request timed out", "rpc error: code = Unavailable")

Make = Callable[[Request, random.Random], Trouble | None]


@fault("api-429", once=True)
async def too_many(world: World, rng: random.Random) -> None:
    """Some requests are answered with 429 and a Retry-After."""
    await _window(world, rng, "api-429", _too_many)


@fault("api-500", once=True)
async def internal(world: World, rng: random.Random) -> None:
    """Some requests are answered with 500; watches by an event in the stream as well."""
    await _window(world, rng, "api-500", _internal)


@fault("api-503", once=True)
async def unavailable(world: World, rng: random.Random) -> None:
    """Some requests are answered with 503."""
    await _window(world, rng, "api-503", _unavailable)


@fault("api-reset-before", once=True)
async def reset_before(world: World, rng: random.Random) -> None:
    """The connection of some requests breaks before they are done."""
    await _window(world, rng, "api-reset-before", lambda request, _: Trouble(drop_before=True))


@fault("api-reset-after", once=True)
async def reset_after(world: World, rng: random.Random) -> None:
    """The connection of some requests breaks when they are done, without an answer."""
    await _window(world, rng, "api-reset-after", lambda request, _: Trouble(drop_after=True))


@fault("api-timeout-before", once=True)
async def timeout_before(world: World, rng: random.Random) -> None:
    """Some requests get no answer in time, and are never done."""
    await _window(world, rng, "api-timeout-before", lambda request, _: Trouble(delay=NO_ANSWER))


@fault("api-timeout-after", once=True)
async def timeout_after(world: World, rng: random.Random) -> None:
    """Some requests are done at once, and get no answer in time."""
    await _window(world, rng, "api-timeout-after", lambda request, _: Trouble(delay_after=NO_ANSWER))


@fault("api-slow", once=True)
async def slow(world: World, rng: random.Random) -> None:
    """Some requests are done late, or answered late."""
    await _window(world, rng, "api-slow", _slow)


@fault("api")
async def api(world: World, rng: random.Random) -> None:
    """Some requests get an error, or no answer before or after they were done."""
    makes: tuple[Make, ...] = (
        _too_many,
        _internal,
        _unavailable,
        lambda request, _: Trouble(drop_before=True),
        lambda request, _: Trouble(drop_after=True),
        _slow,
    )
    await _window(world, rng, "api", lambda request, rng: rng.choice(makes)(request, rng), victims.ALL)


@fault("list-slow", once=True)
async def list_slow(world: World, rng: random.Random) -> None:
    """Lists take seconds: before they are read, or on their way, so that they are old when they arrive."""
    victim, seconds, old = victims.some(world, rng), rng.uniform(*SLOW_LIST), rng.random() < 0.5
    trouble = Trouble(delay_after=seconds) if old else Trouble(delay=seconds)

    def befalls(request: Request) -> Trouble | None:
        return trouble if _is_list(request) and victim.sent(request) else None

    world.say(f"list-slow: lists of {victim} take {seconds:.1f} s{' and are as old' if old else ''}")
    with world.cluster.server.knobs.troubled(befalls):
        await asyncio.sleep(rng.uniform(20.0, 60.0))


@fault("list-pages", once=True)
async def list_pages(world: World, rng: random.Random) -> None:
    """Lists come in small pages, and history is compacted between some of them."""
    server = world.cluster.server
    size, odds = rng.randint(*PAGES), rng.choice((0.0, 0.5, 1.0))

    def page(request: Request) -> Trouble | None:
        if not _is_list(request) or not request.user.startswith(victims.OURS):
            return None
        if "continue" in request.query and rng.random() < odds:
            world.say(f"list-pages: history is compacted while {request.user} reads {request.path}")
            server.store.leap(1)
            server.store.compact()
        return Trouble(page=size)

    world.say(f"list-pages: lists come in pages of {size}")
    with server.knobs.troubled(page):
        server.store.compact()
        server.break_watches()
        await asyncio.sleep(rng.uniform(20.0, 60.0))


@fault("conflict", once=True)
async def conflict(world: World, rng: random.Random) -> None:
    """Another writer touches objects right before our writes of them."""
    server = world.cluster.server

    def touch(request: Request) -> None:
        if not _is_conditional(request) or not request.user.startswith(victims.OURS) or rng.random() >= CONFLICT_ODDS:
            return
        goal = target(request.path)
        record = server.store.get(goal.kind, (goal.namespace, goal.name))
        if record is not None:
            world.say(f"conflict: {request.path} is written right before {request.user} writes it")
            server.store.put(goal.kind, (goal.namespace, goal.name), record.object)

    with server.knobs.troubled(touch):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))


def _is_list(request: Request) -> bool:
    asked = request.method == "GET" and request.path.startswith("/api") and not request.is_watch
    return asked and not target(request.path).name


def _is_conditional(request: Request) -> bool:
    """Whether it is a write that is refused when the object is not at a version."""
    if request.method not in ("PATCH", "PUT", "DELETE") or not request.body:
        return False
    body = json.loads(request.body)
    parts = (body.get("metadata"), body.get("preconditions")) if isinstance(body, dict) else ()
    return any("resourceVersion" in part for part in parts if part)


async def _window(world: World, rng: random.Random, name: str, make: Make, whose: victims.Victim | None = None) -> None:
    """For seconds some requests of some of ours get what `make` says."""
    victim = whose or victims.some(world, rng)
    odds = ODDS[0] * (ODDS[1] / ODDS[0]) ** rng.random()

    def trouble(request: Request) -> Trouble | None:
        if not victim.sent(request) or rng.random() >= odds:
            return None
        chosen = make(request, rng)
        world.say(f"{name}: {request.method} {request.path} of {request.user}: {chosen}")
        return chosen

    with world.cluster.server.knobs.troubled(trouble):
        await asyncio.sleep(rng.uniform(*WINDOW_SECONDS))


def _too_many(request: Request, rng: random.Random) -> Trouble:
    seconds = rng.choice(RETRY_AFTER)
    return Trouble(failure=ApiFailure(429, "TooManyRequests", "too many requests", retry_after=seconds))


def _internal(request: Request, rng: random.Random) -> Trouble:
    failure = ApiFailure(500, "InternalError", rng.choice(KINDS_OF_500))
    return Trouble(failure=failure, in_stream=request.is_watch and rng.random() < 0.5)


def _unavailable(request: Request, rng: random.Random) -> Trouble:
    return Trouble(failure=ApiFailure(503, "ServiceUnavailable", "the server is overloaded"))


def _slow(request: Request, rng: random.Random) -> Trouble:
    seconds = rng.uniform(0.2, 5.0)
    return Trouble(delay=seconds) if rng.random() < 0.5 else Trouble(delay_after=seconds)
