"""What must hold right before the first write of a change to this host."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reconciler.agent.deps import Deps
from reconciler.api import names
from reconciler.api.node import NodeState, Stage, decode_state
from reconciler.cri.api import CriError, Sandbox
from reconciler.hostconfig import Fence
from reconciler.kube import stop
from reconciler.kube.errors import ApiError, TransportError
from reconciler.kube.resources import NODES

CALL = 5.0
"""Seconds for one call of CRI."""
STOPPED = "Stopped"
STOP_UNKNOWN = "StopUnknown"
"""Reasons of waiting: a person has stopped everything; nobody can be asked whether that is so."""


class Stale(Exception):
    """The Node does not ask for this work any more; nothing was changed."""


class Wait(Exception):
    """Not now; the reason is CamelCase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Gate:
    """Asks everybody who has a say. `stopping()`: this agent begins nothing new."""

    def __init__(self, deps: Deps, *, stopping: Callable[[], bool]) -> None:
        self._deps = deps
        self._stopping = stopping

    def fence(self, runtime: str, state: NodeState, handlers: frozenset[str]) -> Fence:
        """Right before the first write: nobody uses `handlers`; the Node, read live, still asks for exactly this; and
        nothing is stopped, which comes last because it must be the youngest answer."""

        async def check() -> None:
            if self._stopping():
                raise Stale
            await self.nobody_uses(handlers, state.stage)
            live = await self._deps.client.get(NODES, self._deps.node)
            text = live.metadata.annotations.get(names.state_annotation(runtime), "")
            try:
                now = decode_state(text) if text else None
            except msgspec.MsgspecError:
                now = None
            if now is None or work_key(now) != work_key(state) or now.forced != state.forced:
                raise Stale
            await self.unstopped()

        return check

    async def unstopped(self) -> None:
        """Raises Wait when a person has stopped everything, or when nobody can be asked whether that is so."""
        try:
            found = await stop.ask(self._deps.client, self._deps.namespace)
        except (ApiError, TransportError) as error:
            raise Wait(STOP_UNKNOWN, f"it cannot be asked whether everything is stopped: {error}") from error
        if found is not None:
            raise Wait(STOPPED, stop.words(found))

    async def nobody_uses(self, handlers: frozenset[str], stage: Stage) -> None:
        """Raises Wait(HandlerInUse); and CriError, but not at an unconfigure, which must work while CRI is down."""
        if not handlers:
            return
        try:
            sandboxes = await self._deps.cri.sandboxes(timeout=CALL)
        except CriError:
            if stage is Stage.UNCONFIGURE:
                return
            raise
        users = [s for s in sandboxes if s.ready and s.handler in handlers]
        if users:
            raise Wait("HandlerInUse", f"{len(users)} sandboxes use it, {_name(users[0])} among them")


def work_key(state: NodeState) -> tuple[str, Stage, str, int]:
    """Which piece of work a state asks for."""
    return (state.uid, state.stage, state.target, state.attempt)


def _name(sandbox: Sandbox) -> str:
    return f"{sandbox.namespace}/{sandbox.name}"
