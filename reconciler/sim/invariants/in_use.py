"""Handlers that somebody's pods use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from reconciler.api.node import AGENT_STAGES, Stage
from reconciler.cri.api import ContainerState
from reconciler.sim import config, kinds
from reconciler.sim.config import Loaded
from reconciler.sim.containerd import Start
from reconciler.sim.invariants.base import Bounded, Surroundings, Write, moves, states
from reconciler.sim.invariants.commits import AroundCommits
from reconciler.sim.node import SimNode
from reconciler.sim.runtime import Process

LOOKED_BEFORE = 30.0
"""Seconds by which the agent's look at the sandboxes may be older than its first write: it asks the API server in
between."""


class InUse(AroundCommits[dict[str, dict[str, str]]]):
    """No agent takes away a handler that a running pod uses, unless a person forces it.

    Told of each start of containerd after which a handler is gone that an agent's steps took out of the configuration.
    Excused are a pod that began while the agent was about to look, a node whose CRI did not answer then, for nobody
    could look, and a handler of an install that did not become ready, for its undo has no choice.
    """

    name = "in-use"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._begun: Bounded[str, float] = Bounded(20_000)
        """Sandbox → when its first container started."""
        self._away: dict[str, float] = {}
        """Node → when its CRI was seen not to answer last."""
        self._taken: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        """Node → handler that an agent's step took out of the configuration → who used it then."""
        self._proven: dict[str, frozenset[str]] = {}
        """Node → handlers that were in the configuration when a runtime became ready there last."""

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        if process.state is ContainerState.RUNNING and self._begun.get(process.sandbox_id) is None:
            self._begun.put(process.sandbox_id, self.around.now)
        yield from ()

    def changed(self, node: SimNode) -> Iterator[str]:
        if not node.daemon.serving:
            self._away[node.name] = self.around.now
        yield from ()

    def wrote(self, step: Write) -> Iterator[str]:
        machine = self.around.machine(step.name) if step.kind is kinds.NODES else None
        if machine is not None and any(new is not None and new.stage is Stage.READY for _, _, new in moves(step)):
            self._proven[step.name] = frozenset(machine.daemon.loaded.handlers)
        yield from ()

    def before(self, node: SimNode, loaded: Loaded) -> dict[str, dict[str, str]]:
        """Handlers of the configuration → who uses them: sandbox → pod."""
        return {handler: self._users(node, handler) for handler in loaded.handlers}

    def after(self, node: SimNode, step: str, before: dict[str, dict[str, str]]) -> None:
        after = frozenset(config.load(node.root).handlers)
        for handler in (before.keys() - after) & self._proven.get(node.name, frozenset()):
            self._taken[node.name].setdefault(handler, before[handler])

    def _users(self, node: SimNode, handler: str) -> dict[str, str]:
        """Those that the agent must have seen."""
        now = self.around.now
        if not node.daemon.serving or now - self._away.get(node.name, -1e9) < LOOKED_BEFORE:
            return {}
        return {
            key: f"{sandbox.namespace}/{sandbox.name}"
            for key, sandbox in node.runtime.sandboxes.items()
            if sandbox.ready and sandbox.handler == handler and now - (self._begun.get(key) or now) >= LOOKED_BEFORE
        }

    def started(self, node: SimNode, start: Start) -> Iterator[str]:
        loaded, taken = config.load(node.root), self._taken.pop(node.name, {})
        if loaded.error or loaded.cri_error or self._forced(node):
            return
        for handler in sorted(taken.keys() - set(loaded.handlers)):
            for sandbox, pod in taken[handler].items():
                found = node.runtime.sandboxes.get(sandbox)
                if found is not None and found.ready:
                    yield f"{node.name}: the agent took {handler} away while {pod} uses it"

    def _forced(self, node: SimNode) -> bool:
        return any(s.forced and s.stage in AGENT_STAGES for s in states(self.around.node(node.name)).values())
