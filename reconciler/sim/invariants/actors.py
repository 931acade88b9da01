"""One actor at a time on a node."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.node import AGENT_STAGES
from reconciler.cri.api import ContainerState
from reconciler.sim import config
from reconciler.sim.invariants.base import Invariant, phase_processes, states
from reconciler.sim.invariants.daemons import COMMITS
from reconciler.sim.node import SimNode
from reconciler.sim.runtime import Process


class OneActor(Invariant):
    """Never two actors at work on a node: two payloads, of whichever runtimes, or a payload and the agent's change.

    Seen in the shims, not in the API: a payload may not start while another one runs, and an agent may not commit a
    change while a payload runs. The guard may: it acts in a payload's time and only on a configuration that would not
    start. What a payload leaves running is the payload's.
    """

    name = "one-actor"

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        if process.state is not ContainerState.RUNNING:
            return
        running = sorted({pod for pod, _ in phase_processes(node)})
        if len(running) > 1:
            yield f"{node.name}: {len(running)} phase pods run at once: {', '.join(running)}"

    def traced(self, node: SimNode, step: str) -> Iterator[str]:
        if not step.startswith(COMMITS):
            return
        running = sorted({pod for pod, _ in phase_processes(node)})
        if not running or not any(s.stage in AGENT_STAGES for s in states(self.around.node(node.name)).values()):
            return
        loaded = config.load(node.root)
        if not loaded.error and not loaded.cri_error:
            yield f"{node.name}: the agent does `{step}` while {', '.join(running)} runs"
