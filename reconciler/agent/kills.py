"""Pods that must go: which of ours are over in CRI, and kills that kubelet lost in an outage (design section 5).

The limits: phase pods and pods that opt in are stopped as soon as the barrier opens again; all others only
after their whole grace period and a margin, counted from the opening, because kubelet counts the grace from its
own attempt. Never: static and mirror pods, the agent itself. Never RemovePodSandbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from reconciler.agent.deps import Deps
from reconciler.api import names
from reconciler.api.meta import Pod
from reconciler.api.node import Stage
from reconciler.barrier.barrier import BarrierFailed, BarrierTimeout, RetryBarrier, State
from reconciler.cri.api import Container, ContainerState, CriError, Sandbox
from reconciler.kube.store import Store

log = logging.getLogger(__name__)

EAGER = 0.2
"""Seconds between looks while a pod of ours is on its way out."""
MARGIN = 10.0
"""Seconds on top of the grace before a foreign pod's kill is retried: kubelet notices within 8 s."""
STOP_DEADLINE = 60.0
CALL = 5.0
MIRROR = ("kubernetes.io/config.mirror", "kubernetes.io/config.source")


class Kills:
    """`ended`: UIDs of phase pods of which CRI runs nothing."""

    def __init__(self, deps: Deps, barrier: RetryBarrier, pods: Store[Pod], changed: Callable[[], None]) -> None:
        self._deps = deps
        self._barrier = barrier
        self._pods = pods
        self._changed = changed
        self._nudge = asyncio.Event()
        self._opened_at: float | None = None
        """Monotonic time of the last opening after an outage."""
        self._outage_seen = False
        self.ended: set[str] = set()
        self.stopped = 0
        """Kills retried."""
        barrier.listen(self._barrier_changed)

    def nudge(self) -> None:
        """A pod has changed."""
        self._nudge.set()

    def _barrier_changed(self, state: State) -> None:
        if state is not State.OPEN:
            self._outage_seen = True
        elif self._outage_seen:
            self._opened_at = asyncio.get_running_loop().time()
        self._nudge.set()

    async def run(self) -> None:
        while True:
            self._nudge.clear()
            await self._barrier_open()
            pause = await self._look()
            try:
                async with asyncio.timeout(pause):
                    await self._nudge.wait()
            except TimeoutError:
                continue

    async def _barrier_open(self) -> None:
        while self._barrier.state is not State.OPEN:
            try:
                await self._barrier.wait_open()
            except BarrierFailed:
                await asyncio.sleep(1.0)  # its CRI plugin is gone: nothing can be asked

    async def _look(self) -> float | None:
        """Look once; seconds until the next look is due, None when only an event can bring news."""
        leaving = [p for p in self._pods.list() if p.metadata.uid not in self.ended and _leaving(p)]
        self.ended &= {p.metadata.uid for p in self._pods.list()}
        doomed = [p for p in leaving if p.metadata.deletion_timestamp is not None and self._mine(p)]
        if not leaving:
            return None
        try:
            containers = await self._deps.cri.containers(timeout=CALL)
            sandboxes = await self._deps.cri.sandboxes(timeout=CALL)
        except CriError:
            self._barrier.close("CallFailed")
            return EAGER
        waits = [self._due(pod) for pod in doomed]
        for pod, wait in zip(doomed, waits, strict=True):
            if wait is not None and wait <= 0:
                await self._kill(pod, containers, sandboxes)
        if any([await self._over(pod, containers, sandboxes) for pod in leaving if _phase_pod(pod)]):
            self._changed()
        later = [w for w in waits if w is not None and w > 0]
        ours = any(_phase_pod(p) and p.metadata.uid not in self.ended for p in leaving)
        return EAGER if ours else min(later, default=None)

    def _mine(self, pod: Pod) -> bool:
        return pod.metadata.uid != self._deps.own_pod and not any(k in pod.metadata.annotations for k in MIRROR)

    def _due(self, pod: Pod) -> float | None:
        """Seconds until the kill of `pod` may be retried; None when no outage got in its way."""
        if self._opened_at is None:
            return None
        since = asyncio.get_running_loop().time() - self._opened_at
        grace = float(pod.metadata.deletion_grace_period_seconds or 0)
        deleted = pod.metadata.deletion_timestamp
        if deleted is None:
            return None
        asked_ago = (self._deps.clock.now() - deleted).total_seconds() + grace
        if asked_ago + 1.0 < since:  # asked for after the opening: nothing got in its way (times are whole seconds)
            return None
        if _phase_pod(pod) or pod.metadata.annotations.get(names.KILL_RETRY_ANNOTATION) == "true":
            return 0.0
        return grace + MARGIN - since

    async def _kill(self, pod: Pod, containers: list[Container], sandboxes: list[Sandbox]) -> None:
        uid = pod.metadata.uid
        running = [c for c in containers if c.pod_uid == uid and c.state is ContainerState.RUNNING]
        ready = [s for s in sandboxes if s.pod_uid == uid and s.ready]
        if not running and not ready:
            return
        deleted = pod.metadata.deletion_timestamp
        owed = 0.0 if deleted is None else max((deleted - self._deps.clock.now()).total_seconds(), 0.0)
        try:
            for container in running:
                await self._barrier.call(
                    lambda c=container: self._deps.cri.stop_container(c.id, grace=owed, timeout=owed + CALL),  # type: ignore[misc]
                    deadline=owed + STOP_DEADLINE,
                )
            for sandbox in ready:
                await self._barrier.call(
                    lambda s=sandbox: self._deps.cri.stop_sandbox(s.id, timeout=30),  # type: ignore[misc]
                    deadline=STOP_DEADLINE,
                )
        except (CriError, BarrierTimeout, BarrierFailed) as error:
            self._deps.metrics.killed("failed")
            log.warning("kill not done", extra={"pod": pod.metadata.name, "error": str(error)})
            return
        self.stopped += 1
        self._deps.metrics.killed("stopped")
        log.info("kill retried", extra={"pod": pod.metadata.name, "namespace": pod.metadata.namespace})

    async def _over(self, pod: Pod, containers: list[Container], sandboxes: list[Sandbox]) -> bool:
        """Whether nothing of this phase pod runs; a finished one's sandbox is stopped for that."""
        uid = pod.metadata.uid
        own = [c for c in containers if c.pod_uid == uid]
        if any(c.state in (ContainerState.RUNNING, ContainerState.CREATED) for c in own):
            return False
        ready = [s for s in sandboxes if s.pod_uid == uid and s.ready]
        if ready and not _finished(pod):
            return False  # kubelet is still at it
        try:
            for sandbox in ready:
                await self._deps.cri.stop_sandbox(sandbox.id, timeout=30)
        except CriError as error:
            log.warning("sandbox not stopped", extra={"pod": pod.metadata.name, "error": str(error)})
            return False
        self.ended.add(uid)
        return True


def _phase_pod(pod: Pod) -> bool:
    return pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE


def _finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed") or any(
        s.state.terminated is not None for s in pod.status.container_statuses
    )


def _leaving(pod: Pod) -> bool:
    """Asked to go; or a finished phase pod that nobody else seals (configure seals a good install)."""
    if pod.metadata.deletion_timestamp is not None:
        return True
    if not _phase_pod(pod) or not _finished(pod):
        return False
    codes = [s.state.terminated.exit_code for s in pod.status.container_statuses if s.state.terminated is not None]
    good = pod.status.phase == "Succeeded" or codes == [0]
    return pod.metadata.labels.get(names.PHASE_LABEL) != Stage.INSTALL or not good
