"""What goes wrong in a run, by name, when and how often decided by the seed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field

from reconciler.api import names
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.failures import ApiFailure
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

KILL_WINDOW_SECONDS = (0.5, 2.5)
"""Length of an outage in the kill window."""
API_ODDS = 0.05
"""Of each request that it is troubled."""


class UnknownFault(ValueError):
    """A name that is not in FAULTS."""


@dataclass
class Injector:
    """Causes the faults that were asked for while `run` goes on, and counts them."""

    cluster: Cluster
    faults: tuple[str, ...]
    """Names of FAULTS."""
    rng: random.Random
    pace: float = 1.0
    """Mean seconds between two faults of one kind."""
    caused: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in self.faults:
                tasks.create_task(FAULTS[name](self))

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.pace)

    def note(self, name: str) -> None:
        self.caused[name] += 1


async def _kill_window(injector: Injector) -> None:
    """containerd is stopped just as phase pods are being killed."""
    seen: set[str] = set()
    while True:
        await asyncio.sleep(0.02)
        for (_, _), record in injector.cluster.server.store.all(kinds.PODS):
            meta = record.object["metadata"]
            fresh = meta["uid"] not in seen and "deletionTimestamp" in meta
            if fresh and (meta.get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE:
                seen.add(meta["uid"])
                await _stop(injector, record.object["spec"]["nodeName"], "kill-window")


async def _stop(injector: Injector, node: str, fault: str) -> None:
    there = injector.cluster.nodes[node]
    if there.daemon.serving:
        injector.note(fault)
        injector.cluster.spawn(there.outage(injector.rng.uniform(*KILL_WINDOW_SECONDS)))


async def _outage(injector: Injector) -> None:
    """containerd is stopped for a moment on some node."""
    while True:
        await injector.pause()
        await _stop(injector, injector.rng.choice(sorted(injector.cluster.nodes)), "outage")


async def _crash(injector: Injector) -> None:
    """containerd dies, and systemd starts it again after 5 s."""
    while True:
        await injector.pause()
        node = injector.cluster.nodes[injector.rng.choice(sorted(injector.cluster.nodes))]
        if node.daemon.serving:
            injector.note("crash")
            node.daemon.crash()


async def _agent(injector: Injector) -> None:
    """An agent is killed."""
    while True:
        await injector.pause()
        node = injector.cluster.nodes[injector.rng.choice(sorted(injector.cluster.nodes))]
        injector.note("agent")
        node.crash_agent()


async def _controller(injector: Injector) -> None:
    """The leading controller is killed."""
    while True:
        await injector.pause()
        leader = injector.cluster.leader
        if leader is not None:
            injector.note("controller")
            leader.kill()


async def _api(injector: Injector) -> None:
    """Some requests get an error, or no answer before or after they were done."""

    def trouble(request: Request) -> Trouble | None:
        if not request.user.startswith(("controller", "agent")) or injector.rng.random() >= API_ODDS:
            return None
        injector.note("api")
        return injector.rng.choice(
            (
                Trouble(failure=ApiFailure(503, "ServiceUnavailable", "the server is overloaded")),
                Trouble(failure=ApiFailure(429, "TooManyRequests", "too many requests", retry_after=1)),
                Trouble(failure=ApiFailure(500, "InternalError", "etcdserver: leader changed")),
                Trouble(drop_before=True),
                Trouble(drop_after=True),
                Trouble(delay=0.5),
            )
        )

    knobs = injector.cluster.server.knobs
    before = knobs.trouble
    knobs.trouble = trouble
    try:
        await asyncio.Event().wait()
    finally:
        knobs.trouble = before


async def _watch(injector: Injector) -> None:
    """All watches break, and every other time their history is compacted away as well."""
    server = injector.cluster.server
    while True:
        await injector.pause()
        injector.note("watch")
        if injector.rng.random() < 0.5:
            server.store.compact()
            server.knobs.expired_in_stream = not server.knobs.expired_in_stream
        server.break_watches()


FAULTS: dict[str, Callable[[Injector], Coroutine[None, None, None]]] = {
    "kill-window": _kill_window,
    "outage": _outage,
    "crash": _crash,
    "agent": _agent,
    "controller": _controller,
    "api": _api,
    "watch": _watch,
}


def parse(text: str) -> tuple[str, ...]:
    """`a,b` → names; `all` → every one; `none` or "" → nothing. Raises UnknownFault."""
    chosen: Iterable[str] = [part.strip() for part in text.split(",") if part.strip()]
    if list(chosen) == ["all"]:
        return tuple(FAULTS)
    if list(chosen) in ([], ["none"]):
        return ()
    unknown = sorted(set(chosen) - set(FAULTS))
    if unknown:
        raise UnknownFault(f"no such fault: {', '.join(unknown)}; there are {', '.join(sorted(FAULTS))}")
    return tuple(chosen)


def describe() -> dict[str, str]:
    """Name → what it does."""
    return {name: (cause.__doc__ or "").rstrip(".") for name, cause in FAULTS.items()}
