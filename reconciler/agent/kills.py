"""Pods that must go: which of ours are over in CRI, and kills that kubelet lost in an outage (design section 5).

The limits: phase pods and pods that opt in are stopped as soon as the barrier opens again; all others only
after their whole grace period and a margin, counted from the first opening after their deletion, because kubelet
counts the grace from its own attempt (from the first: a hook that restarts containerd would put it off for ever).
Never: static and mirror pods, the agent itself. Never RemovePodSandbox.
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
from reconciler.barrier.errors import ErrorClass, classify
from reconciler.cri.api import Container, ContainerState, CriError, Sandbox
from reconciler.kube.store import Store

log = logging.getLogger(__name__)

EAGER = 0.2
"""Seconds between looks while a pod of ours is on its way out."""
MARGIN = 10.0
"""Seconds on top of the grace before a foreign pod's kill is retried: kubelet notices within 8 s."""
STOP_DEADLINE = 60.0
CALL = 5.0
QUIET = 3.0
"""Seconds that a pod on its way out must have had no container at all: kubelet may be about to make one."""
LOOP = 2
"""Outages in one kill of a phase pod that prove a loop: its own preStop hook makes them."""
LOOP_GRACE = 2.0
"""Seconds of grace left to a phase pod in a loop: kubelet runs the hook again 7 s after an outage at the earliest."""
ABREAST = 4
"""Kills retried at once."""
OPENINGS = 16
"""Openings remembered: a loop makes one every few seconds, and only the first after a deletion matters."""
STOP_SANDBOX = 30.0
"""Seconds for one StopPodSandbox: the teardown of its network may be slow."""
MIRROR = ("kubernetes.io/config.mirror", "kubernetes.io/config.source")


class Kills:
    """`ended`: UIDs of phase pods of which CRI runs nothing."""

    def __init__(self, deps: Deps, barrier: RetryBarrier, pods: Store[Pod], changed: Callable[[], None]) -> None:
        self._deps = deps
        self._barrier = barrier
        self._pods = pods
        self._changed = changed
        self._nudge = asyncio.Event()
        self._outage_seen = False
        self._openings: list[float] = []
        """Loop times of openings after an outage, the last OPENINGS of them."""
        self._quiet: dict[str, float] = {}
        """By UID: since when CRI has shown no container of a pod that is on its way out."""
        self._killing: dict[str, asyncio.Task[None]] = {}
        self._abreast = asyncio.Semaphore(ABREAST)
        self.ended: set[str] = set()
        self.stopped = 0
        """Kills retried."""
        barrier.listen(self._barrier_changed)

    def nudge(self) -> None:
        """A pod has changed."""
        self._nudge.set()

    def to_come(self, uid: str) -> bool:
        """Whether the API has a pod that is not known to be over: without a container yet, it may still get one."""
        known = (pod for pod in self._pods.list() if pod.metadata.uid == uid)
        return uid not in self.ended and any(not _finished(pod) for pod in known)

    def _barrier_changed(self, state: State) -> None:
        if state is not State.OPEN:
            self._outage_seen = True
        elif self._outage_seen:
            self._openings = [*self._openings, asyncio.get_running_loop().time()][-OPENINGS:]
        self._nudge.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            await self._loop(tasks)

    async def _loop(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._nudge.clear()
            await self._barrier_open()
            pause = await self._look(tasks)
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

    async def _look(self, tasks: asyncio.TaskGroup) -> float | None:
        """Look once; seconds until the next look is due, None when only an event can bring news."""
        here = {pod.metadata.uid for pod in self._pods.list()}
        self.ended &= here
        self._quiet = {uid: since for uid, since in self._quiet.items() if uid in here}
        leaving = [p for p in self._pods.list() if p.metadata.uid not in self.ended and _leaving(p)]
        doomed = [p for p in leaving if p.metadata.deletion_timestamp is not None and self._mine(p)]
        if not leaving:
            return None
        try:
            containers = await self._deps.cri.containers(timeout=CALL)
            sandboxes = await self._deps.cri.sandboxes(timeout=CALL)
        except CriError as error:
            if classify(error) is ErrorClass.OUTAGE:
                self._barrier.close("CallFailed")
            return EAGER
        waits = [self._due(pod) for pod in doomed]
        for pod, wait in zip(doomed, waits, strict=True):
            if wait is not None and wait <= 0 and pod.metadata.uid not in self._killing:
                self._begin(tasks, pod, containers, sandboxes)
        if any([await self._over(pod, containers, sandboxes) for pod in leaving if phase_pod(pod)]):
            self._changed()
        later = [w for w in waits if w is not None and w > 0]
        ours = any(phase_pod(p) and p.metadata.uid not in self.ended for p in leaving)
        return EAGER if ours else min(later, default=None)

    def _mine(self, pod: Pod) -> bool:
        return pod.metadata.uid != self._deps.own_pod and not any(k in pod.metadata.annotations for k in MIRROR)

    def _due(self, pod: Pod) -> float | None:
        """Seconds until the kill of `pod` may be retried; None when no outage got in its way."""
        deleted = pod.metadata.deletion_timestamp
        if deleted is None:
            return None
        since = self._openings_since(pod)
        if not since:
            return None
        if phase_pod(pod) or pod.metadata.annotations.get(names.KILL_RETRY_ANNOTATION) == "true":
            return 0.0
        grace = float(pod.metadata.deletion_grace_period_seconds or 0)
        return since[0] + grace + MARGIN - asyncio.get_running_loop().time()

    def _openings_since(self, pod: Pod) -> list[float]:
        """Loop times of the openings since the pod's deletion was asked for; the API's times are whole seconds."""
        deleted = pod.metadata.deletion_timestamp
        if deleted is None:
            return []
        grace = float(pod.metadata.deletion_grace_period_seconds or 0)
        asked_ago = (self._deps.clock.now() - deleted).total_seconds() + grace
        asked = asyncio.get_running_loop().time() - asked_ago - 1.0
        return [opened for opened in self._openings if opened >= asked]

    def _begin(self, tasks: asyncio.TaskGroup, pod: Pod, containers: list[Container], sandboxes: list[Sandbox]) -> None:
        """Kills run beside the looks: one that is owed a long grace must not hold up the others."""
        uid = pod.metadata.uid
        alive = (ContainerState.RUNNING, ContainerState.CREATED)
        running = [c for c in containers if c.pod_uid == uid and c.state in alive]
        ready = [s for s in sandboxes if s.pod_uid == uid and s.ready]
        if not running and not ready:
            return
        task = tasks.create_task(self._kill(pod, running, ready))
        self._killing[uid] = task
        task.add_done_callback(lambda _: self._killed(uid))

    def _killed(self, uid: str) -> None:
        self._killing.pop(uid, None)
        self._nudge.set()

    async def _kill(self, pod: Pod, running: list[Container], ready: list[Sandbox]) -> None:
        try:
            async with self._abreast:
                for container in running:
                    await self._stop_container(pod, container.id)
                for sandbox in ready:
                    await self._stop_sandbox(sandbox.id)
        except (CriError, BarrierTimeout, BarrierFailed) as error:
            self._deps.metrics.killed("failed")
            log.warning("kill not done", extra={"pod": pod.metadata.name, "error": str(error)})
            return
        self.stopped += 1
        self._deps.metrics.killed("stopped")
        log.info("kill retried", extra={"pod": pod.metadata.name, "namespace": pod.metadata.namespace})

    async def _stop_container(self, pod: Pod, identity: str) -> None:
        """With what is left of the grace at each try: a try that an outage cut short counts."""

        def left() -> float:
            deleted = pod.metadata.deletion_timestamp
            owed = 0.0 if deleted is None else max((deleted - self._deps.clock.now()).total_seconds(), 0.0)
            looping = phase_pod(pod) and len(self._openings_since(pod)) >= LOOP
            return min(owed, LOOP_GRACE) if looping else owed

        async def stop() -> None:
            grace = left()
            await self._deps.cri.stop_container(identity, grace=grace, timeout=grace + CALL)

        await self._barrier.call(stop, deadline=left() + STOP_DEADLINE)

    async def _stop_sandbox(self, identity: str) -> None:
        async def stop() -> None:
            await self._deps.cri.stop_sandbox(identity, timeout=STOP_SANDBOX)

        await self._barrier.call(stop, deadline=STOP_DEADLINE)

    async def _over(self, pod: Pod, containers: list[Container], sandboxes: list[Sandbox]) -> bool:
        """Whether nothing of this phase pod runs; a finished one's sandbox is stopped for that."""
        uid = pod.metadata.uid
        own = [c for c in containers if c.pod_uid == uid]
        if any(c.state in (ContainerState.RUNNING, ContainerState.CREATED) for c in own):
            return False
        ready = [s for s in sandboxes if s.pod_uid == uid and s.ready]
        if not _finished(pod) and (ready or not own) and not self._has_been_quiet(uid, bool(ready)):
            return False  # kubelet is still at it
        try:
            for sandbox in ready:
                await self._deps.cri.stop_sandbox(sandbox.id, timeout=STOP_SANDBOX)
        except CriError as error:
            log.warning("sandbox not stopped", extra={"pod": pod.metadata.name, "error": str(error)})
            return False
        self.ended.add(uid)
        return True

    def _has_been_quiet(self, uid: str, sandbox_ready: bool) -> bool:
        """A pod without any container is over once that stays so: kubelet, too, may be making one."""
        now = asyncio.get_running_loop().time()
        if sandbox_ready:
            self._quiet.pop(uid, None)
            return False
        return now - self._quiet.setdefault(uid, now) >= QUIET


def phase_pod(pod: Pod) -> bool:
    return pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE


def _finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed") or any(
        s.state.terminated is not None for s in pod.status.container_statuses
    )


def _leaving(pod: Pod) -> bool:
    """Asked to go; or a finished phase pod that nobody else seals (configure seals a good install).

    A finished pod that is deleted without grace is no news: the API server removes it with that very write.
    """
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_grace_period_seconds != 0 or not _finished(pod)
    if not phase_pod(pod) or not _finished(pod):
        return False
    codes = [s.state.terminated.exit_code for s in pod.status.container_statuses if s.state.terminated is not None]
    good = pod.status.phase == "Succeeded" or codes == [0]
    return pod.metadata.labels.get(names.PHASE_LABEL) != Stage.INSTALL or not good
