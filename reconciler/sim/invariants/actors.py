"""One actor at a time on a node."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.api.node import AGENT_STAGES
from reconciler.cri.api import ContainerState
from reconciler.sim import config, kinds
from reconciler.sim.invariants.base import (
    Bounded,
    Invariant,
    Surroundings,
    Write,
    is_phase_pod,
    phase_processes,
    states,
)
from reconciler.sim.invariants.daemons import COMMITS
from reconciler.sim.node import SimNode
from reconciler.sim.runtime import Process

STRAY_SECONDS = 45.0
"""Until a payload whose pod was taken away by force has ended: 30 s are kubelet's, then the agent stops it."""


class OneActor(Invariant):
    """Never two actors at work on a node: two payloads, of whichever runtimes, or a payload and the agent's change.

    Seen in the shims, not in the API: a payload may not start while another one runs, and an agent may not commit a
    change while a payload runs. The guard may: it acts in a payload's time and only on a configuration that would not
    start. What a payload leaves running is the payload's. A pod that somebody else takes out of the API by force may
    run on for as long as kubelet and agent need to end it, 45 s in which the agent lives: the API tells nobody of it.
    The agent sees it, and commits nothing.
    """

    name = "one-actor"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._forced: Bounded[str, float] = Bounded(20_000)
        """UID of a phase pod that somebody else took out of the API → when."""

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.PODS and step.new is None and is_phase_pod(step.any) and not step.of_controller:
            self._forced.put(step.any["metadata"]["uid"], self.around.now)
        yield from ()

    def _stray(self, node: SimNode, uid: str) -> bool:
        since = self._forced.get(uid)
        if since is None:
            return False
        return self.around.now - since < STRAY_SECONDS or not self.around.agent_lives(node.name, STRAY_SECONDS)

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        if process.state is not ContainerState.RUNNING:
            return
        found = {(pod, one.pod_uid) for pod, one in phase_processes(node)}
        running = sorted(pod for pod, uid in found if not self._stray(node, uid))
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
