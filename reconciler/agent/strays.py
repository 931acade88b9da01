"""Payloads that still run although their pod is gone from the API: somebody deleted it by force.

Kubelet ends them, within seconds. It never does when the pod's preStop hook restarts containerd: each of its kills
then fails, runs the hook again, and no object is left whose kill could be retried. So it is done here, after an outage
that came in between or 30 s, and only when the API server says, asked itself, that there is no such pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from reconciler.agent.deps import Deps
from reconciler.api import names
from reconciler.barrier.barrier import RetryBarrier, State
from reconciler.cri.api import Container, ContainerState, CriError, Sandbox
from reconciler.kube.errors import ApiError, NotFound, TransportError
from reconciler.kube.resources import PODS

log = logging.getLogger(__name__)

LOOK = 2.0
"""Seconds between looks while there is a stray."""
PATIENCE = 30.0
"""Seconds that kubelet has without an outage."""
CALL = 5.0
STOP_SANDBOX = 30.0
ALIVE = (ContainerState.CREATED, ContainerState.RUNNING)


class Strays:
    """`known()`: UIDs of the pods of this node, None as long as they have not been listed."""

    def __init__(self, deps: Deps, barrier: RetryBarrier, known: Callable[[], set[str] | None]) -> None:
        self._deps = deps
        self._barrier = barrier
        self._known = known
        self._nudge = asyncio.Event()
        self._since: dict[str, float] = {}
        """By UID: since when it is known for a stray."""
        self._opened = float("-inf")
        barrier.listen(self._barrier_changed)

    def nudge(self) -> None:
        """A pod is gone."""
        self._nudge.set()

    def _barrier_changed(self, state: State) -> None:
        if state is State.OPEN:
            self._opened = asyncio.get_running_loop().time()
            self._nudge.set()

    async def run(self) -> None:
        while True:
            self._nudge.clear()
            pause = LOOK if await self._look() else None
            try:
                async with asyncio.timeout(pause):
                    await self._nudge.wait()
            except TimeoutError:
                continue

    async def _look(self) -> bool:
        """Whether there may be one, so that another look is needed."""
        known = self._known()
        if known is None:
            return True
        if self._barrier.state is not State.OPEN:
            return False  # its opening is told
        try:
            containers = await self._deps.cri.containers(timeout=CALL)
            found = alive(containers, await self._deps.cri.sandboxes(timeout=CALL))
            strays = {uid: box for uid, box in found.items() if uid not in known}
            now = asyncio.get_running_loop().time()
            self._since = {uid: self._since.get(uid, now) for uid in strays}
            for uid, sandbox in strays.items():
                if self._due(uid, now) and await self._gone(sandbox):
                    await self._stop(sandbox)
        except (CriError, ApiError, TransportError) as error:
            log.warning("strays not looked after", extra={"error": str(error)})
            return True
        return bool(strays)

    def _due(self, uid: str, now: float) -> bool:
        since = self._since[uid]
        return self._opened > since or now - since >= PATIENCE

    async def _gone(self, sandbox: Sandbox) -> bool:
        try:
            pod = await self._deps.client.get(PODS, sandbox.name, sandbox.namespace)
        except NotFound:
            return True
        return pod.metadata.uid != sandbox.pod_uid

    async def _stop(self, sandbox: Sandbox) -> None:
        for container in await self._deps.cri.containers(timeout=CALL):
            if container.pod_uid == sandbox.pod_uid and container.state in ALIVE:
                await self._deps.cri.stop_container(container.id, grace=0, timeout=CALL)
        await self._deps.cri.stop_sandbox(sandbox.id, timeout=STOP_SANDBOX)
        self._deps.metrics.killed("stopped")
        log.info("stray payload stopped", extra={"pod": sandbox.name, "uid": sandbox.pod_uid})


def alive(containers: list[Container], sandboxes: list[Sandbox]) -> dict[str, Sandbox]:
    """By UID of its pod: sandboxes of phase pods in which a container runs or is about to, of what CRI has shown."""
    uids = {container.pod_uid for container in containers if container.state in ALIVE}
    phase = (box for box in sandboxes if box.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE)
    return {box.pod_uid: box for box in phase if box.pod_uid in uids}
