"""The eye on a running cluster: it is told of every step and asks each invariant about it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from reconciler.sim import kinds
from reconciler.sim.clock import VirtualLoop
from reconciler.sim.cluster import Cluster
from reconciler.sim.invariants.base import Breach, Invariant, Sent, Surroundings, Write, condition
from reconciler.sim.invariants.catalogue import INVARIANTS
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.node import SimNode
from reconciler.sim.requests import Request
from reconciler.sim.store import Event

TICK = 1.0
"""Least seconds between two looks at what is broken by time alone."""
BREACHES_MAX = 1000
"""Kept; a run that has so many is not read to its end."""
LEASE_SECONDS = 10.0
"""Until a Lease that is not renewed is over, by the server's time."""

Told = Callable[..., Iterable[str]]


class Observer:
    """`broken` holds each breach once. Nodes and replicas may come and go; nothing has to be awaited."""

    def __init__(self, cluster: Cluster, invariants: Iterable[type[Invariant]] = INVARIANTS) -> None:
        self.broken: list[Breach] = []
        self.around = Surroundings(cluster)
        self._said: set[tuple[str, str]] = set()
        self._ticked = 0.0
        self._renewed: tuple[str, float] = ("", 0.0)
        self._loop = asyncio.get_running_loop()
        self._inline = isinstance(self._loop, VirtualLoop)
        """Else the steps of an agent's change are taken on threads of their own, and who needs them cannot judge."""
        made = [each(self.around) for each in invariants if self._inline or each.traced is Invariant.traced]
        self._told = {step: _tellers(made, step) for step in _STEPS}
        cluster.server.store.written.append(self._wrote)
        cluster.server.answered.append(self._answered)
        cluster.taps.sent.append(self._sent)
        cluster.taps.heard.append(self._heard)
        cluster.joined.append(self._joined)
        for node in cluster.nodes.values():
            self._joined(node)
        for obj in self.around.objects(kinds.LEASES):
            self._lease(obj)
        for obj in self.around.objects(kinds.PODS):
            self._agent(obj)

    def say(self, invariant: str, what: str) -> None:
        """A breach, unless it is known."""
        if (invariant, what) not in self._said and len(self.broken) < BREACHES_MAX:
            self._said.add((invariant, what))
            self.broken.append(Breach(self.around.now, invariant, what))

    # --- what the world tells ---

    def _wrote(self, kind: Kind, event: Event) -> None:
        old = None if event.old is None else event.old.object
        new = None if event.new is None else event.new.object
        self._note(kind, old, new)
        namespace, name = event.key
        step = Write(kind, namespace, name, old, new, self.around.cluster.server.asking)
        if kind is kinds.NODERUNTIMES and not step.ours:
            self.around.edited[name] = self._loop.time()
        self._tell("wrote", step)

    def _answered(self, request: Request, status: int) -> None:
        if status >= 500 or status == 429:
            self.around.troubled[request.user] = self._loop.time()
        self._tell("answered", request, status)

    def _sent(self, user: str, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> None:
        self._tell("sent", Sent(user, method, path, query, body))

    def _heard(self, user: str, method: str, path: str, data: bytes) -> None:
        self._tell("heard", user, method, path, data)

    def _joined(self, node: SimNode) -> None:
        node.daemon.started.append(partial(self._tell, "started", node))
        node.daemon.changed.append(partial(self._tell, "changed", node))
        node.runtime.lived.append(partial(self._tell, "lived", node))
        if self._inline:
            node.on_step.append(partial(self._tell, "traced", node))

    # --- what everybody needs to know ---

    def _note(self, kind: Kind, old: Object | None, new: Object | None) -> None:
        if kind is kinds.LEASES and new is not None:
            self._lease(new)
        elif kind is kinds.PODS:
            found = new if new is not None else old
            if found is not None:
                self._agent(found, gone=new is None)

    def _lease(self, lease: Object) -> None:
        """Leading goes on while the holder stays the same and renews in time."""
        now, holder = self._loop.time(), lease["spec"].get("holderIdentity") or ""
        before, renewed = self._renewed
        if not holder:
            self.around.led_since = None
        elif holder != before or now - renewed > LEASE_SECONDS or self.around.led_since is None:
            self.around.led_since = now
        self._renewed = (holder, now)

    def _agent(self, pod: Object, *, gone: bool = False) -> None:
        name = pod["metadata"]["name"]
        node = pod["spec"].get("nodeName", "") if "spec" in pod else ""
        if name != f"reconciler-agent-{node}":
            return
        if gone or condition(pod, "Ready") != "True":
            self.around.agent_since.pop(node, None)
        else:
            self.around.agent_since.setdefault(node, self._loop.time())

    # --- asking ---

    def _tell(self, step: str, *what: Any) -> None:
        now = self._loop.time()
        self.around.now = now
        if self._renewed[0] and now - self._renewed[1] > LEASE_SECONDS:
            self.around.led_since = None
        for name, told in self._told[step]:
            for sentence in told(*what):
                self.say(name, sentence)
        if now - self._ticked >= TICK:
            self._ticked = now
            for name, told in self._told["ticked"]:
                for sentence in told():
                    self.say(name, sentence)


_STEPS = ("wrote", "sent", "heard", "answered", "started", "changed", "lived", "traced", "ticked")


def _tellers(invariants: Iterable[Invariant], step: str) -> list[tuple[str, Told]]:
    """Only of those that want to know of it."""
    return [
        (one.name, getattr(one, step)) for one in invariants if getattr(type(one), step) is not getattr(Invariant, step)
    ]
