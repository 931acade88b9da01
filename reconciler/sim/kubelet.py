"""A simulated kubelet: runs the pods of its node through the simulated containerd, kills them, reports.

Where it is slow on purpose, the figures were measured on a real 1.34 with containerd 1.6, and both are held to one
table (`tests/conformance/kubelet_ways.py`): what an outage of CRI made fail is tried again 10 to 15 s later, or once
CRI is back where that is later, a kill with its preStop hook run **again**; a pod whose containers somebody else has
stopped is noticed within a few seconds; a kill that goes on is not hurried by a shorter grace or a force delete.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.api.meta import ObjectMeta
from reconciler.cri.api import ContainerState, CriError, Sandbox
from reconciler.kube.client import Client
from reconciler.kube.errors import ApiError, Conflict, Invalid, NotFound, TransportError
from reconciler.kube.informer import Informer
from reconciler.kube.resources import PODS, RUNTIMECLASSES, Resource
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from reconciler.sim import payload
from reconciler.sim.podstatus import ended_status, failed_status, running_status, waiting_status
from reconciler.sim.runtime import Process, Runtime, SimCri

log = logging.getLogger(__name__)

START_SECONDS = (0.05, 0.2)
"""From seeing a pod to having its sandbox."""
RETRY = (10.0, 15.0)
"""Seconds from a start or a kill that failed until it is tried again (`backOffPeriod` in `pkg/kubelet/kubelet.go`)."""
NOTICE = (0.5, 2.0)
"""Seconds until the pod lifecycle event generator has seen that a container ended, or that CRI is back."""
PULL_BACKOFF = (10.0, 300.0)
"""Seconds between two pulls of an image, doubled each time: the least and the most (`pkg/kubelet/kubelet.go`)."""
API_RETRY = 0.5
API_TRIES = 240


class FullPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod with its whole spec, as a kubelet needs it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


FULL_PODS: Resource[FullPod] = Resource("", "v1", "pods", True, "Pod", FullPod)


@dataclass
class Worker:
    """One pod UID. `changed` is set at every event of it."""

    pod: FullPod
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False
    """Its object is not in the API any more."""
    sandbox: str = ""
    process: Process | None = None

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def deleting(self) -> bool:
        return self.gone or self.pod.metadata.deletion_timestamp is not None

    @property
    def over(self) -> bool:
        """It has ended, or was evicted before it began: Never means never."""
        return self.pod.status.get("phase") in ("Succeeded", "Failed")

    @property
    def grace(self) -> float:
        return 1.0 if self.gone else float(self.pod.metadata.deletion_grace_period_seconds or 0)

    @property
    def container(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.pod.spec["containers"][0]
        return found


class Kubelet:
    """`run` until cancelled. A cancelled kubelet leaves its containers running; `adopt` finds them again."""

    def __init__(
        self,
        client: Client,
        node: str,
        runtime: Runtime,
        *,
        clock: Clock,
        rng: random.Random,
        images: set[str],
        missing: set[str],
        here: Callable[[frozenset[str]], None] = lambda names: None,
    ) -> None:
        """`images`: what can be pulled, beside those of `sim.payload`, but for what begins as one of `missing`.

        Both may change at any time. `here` is told every 2 s which pods the API has for this node, by name.
        """
        self.failed_kills = 0
        """Kills that hit an outage."""
        self._client = client
        self._node = node
        self._runtime = runtime
        self._cri = SimCri(runtime)
        self._clock = clock
        self._rng = rng
        self._images = images
        self._missing = missing
        self._here = here
        self._workers: dict[str, Worker] = {}

    async def run(self) -> None:
        pods = Informer(
            self._client,
            FULL_PODS,
            clock=self._clock,
            rng=self._rng,
            field_selector=f"spec.nodeName={self._node}",
        )
        async with asyncio.TaskGroup() as tasks:
            pods.add_handler(lambda kind, old, new, initial: self._on_pod(tasks, kind, old, new))
            tasks.create_task(pods.run())
            tasks.create_task(self._orphans(pods))

    def _on_pod(self, tasks: asyncio.TaskGroup, kind: str, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        if pod is None or pod.metadata.labels.get(names.COMPONENT_LABEL) == names.COMPONENT_AGENT:
            return
        worker = self._workers.get(pod.metadata.uid)
        if worker is None:
            if kind == "deleted":
                return
            worker = self._workers[pod.metadata.uid] = Worker(pod)
            tasks.create_task(self._work(worker))
        worker.pod = pod
        worker.gone = kind == "deleted"
        worker.changed.set()

    async def _work(self, worker: Worker) -> None:
        """From the first sight of a pod to its end."""
        try:
            over = worker.over
            if not over:
                over = await self._live(worker)
            while not worker.deleting:
                await _changed(worker)
            await self._kill(worker, run_hook=not over)
            if not worker.gone:
                await self._finish(worker)
            self._runtime.remove_pod(worker.uid)
        finally:
            del self._workers[worker.uid]

    # --- living ---

    async def _live(self, worker: Worker) -> bool:
        """Start it and wait for its end, or for its deletion; whether it ended by itself."""
        await asyncio.sleep(self._rng.uniform(*START_SECONDS))
        if not self._adopt(worker):
            if worker.pod.status.get("startTime"):  # it ran before the machine went down: Never means never
                await self._report(worker, failed_status("ContainerStatusUnknown", "the node was rebooted"))
                return True
            await self._start(worker)
        process = worker.process
        if process is None:
            return False
        await self._report(worker, running_status(worker.container["name"], process))
        while not worker.deleting:
            if process.ended.is_set() and await self._noticed():
                status = ended_status(worker.container["name"], process, str(worker.pod.status.get("startTime", "")))
                await self._stop_sandbox(worker)
                await self._report(worker, status)
                return True
            await _either(worker, process.ended)
        return False

    def _adopt(self, worker: Worker) -> bool:
        process = next((p for p in self._runtime.processes.values() if p.pod_uid == worker.uid), None)
        if process is None:
            return False
        worker.process, worker.sandbox = process, process.sandbox_id
        return True

    async def _start(self, worker: Worker) -> None:
        """Try until it runs, or is to be deleted, or was evicted."""
        await self._pull(worker)
        while not (worker.deleting or worker.over):
            try:
                await self._launch(worker)
                return
            except CriError as error:
                log.debug("pod cannot be started", extra={"node": self._node, "error": error.message})
            await _changed(worker, self._rng.uniform(*RETRY))
            while not worker.deleting and not self._runtime.daemon.serving:
                await _changed(worker, self._rng.uniform(*NOTICE))

    async def _pull(self, worker: Worker) -> None:
        """Until the image is there or the pod is to be deleted; the reason goes to and fro, as a kubelet's does."""
        name, image, wait = worker.container["name"], str(worker.container.get("image", "")), PULL_BACKOFF[0]
        why = f'failed to pull and unpack image "{image}": not found'
        while not (worker.deleting or worker.over or self._pullable(image)):
            await self._report(worker, waiting_status(name, "ErrImagePull", why))
            await asyncio.sleep(1.0)
            backing_off = f'Back-off pulling image "{image}": ErrImagePull: {why}'
            await self._report(worker, waiting_status(name, "ImagePullBackOff", backing_off))
            await _changed_to_die(worker, wait)
            wait = min(2 * wait, PULL_BACKOFF[1])

    def _pullable(self, image: str) -> bool:
        known = image.startswith(payload.IMAGE) or image in self._images
        return known and not image.startswith(tuple(self._missing))

    async def _launch(self, worker: Worker) -> None:
        meta = worker.pod.metadata
        if not worker.sandbox:
            handler = await self._handler(worker.pod)
            sandbox = Sandbox("", meta.name, meta.namespace, meta.uid, True, handler, dict(meta.labels))
            worker.sandbox = await self._runtime.create_sandbox(sandbox)
        arguments = [*worker.container.get("command", ()), *worker.container.get("args", ())]
        behaviour = payload.parse(arguments)
        worker.process = await self._runtime.run_container(worker.sandbox, worker.container["name"], behaviour)

    async def _handler(self, pod: FullPod) -> str:
        name = str(pod.spec.get("runtimeClassName") or "")
        if not name:
            return ""
        try:
            return (await self._client.get(RUNTIMECLASSES, name)).handler
        except (ApiError, TransportError):
            return name

    async def _noticed(self) -> bool:
        """A container that ended is seen only through CRI."""
        try:
            await self._cri.containers(timeout=2.0)
        except CriError:
            await asyncio.sleep(1.0)
            return False
        return True

    # --- dying ---

    async def _kill(self, worker: Worker, *, run_hook: bool) -> None:
        """Until nothing of it runs. Each try runs the preStop hook again: that is kubelet's way."""
        while True:
            try:
                await self._kill_once(worker, run_hook=run_hook)
                return
            except CriError as error:
                self.failed_kills += 1
                log.debug("FailedKillPod", extra={"node": self._node, "error": error.message})
            await self._kill_again(worker)

    async def _kill_once(self, worker: Worker, *, run_hook: bool) -> None:
        process = worker.process
        if process is not None and process.state is ContainerState.RUNNING:
            hook = _hook(worker.container, process)
            if hook is not None and run_hook:
                await self._runtime.call(2.0)
                await self._runtime.hook(hook)
            await self._cri.stop_container(process.id, grace=worker.grace, timeout=worker.grace + 2.0)
        await self._cri.containers(timeout=2.0)
        if worker.sandbox:
            await self._cri.stop_sandbox(worker.sandbox, timeout=4.0)

    async def _kill_again(self, worker: Worker) -> None:
        """Wait as a real kubelet does, or until it notices that somebody else has done it."""
        due = asyncio.get_running_loop().time() + self._rng.uniform(*RETRY)
        while True:
            await self._runtime.daemon.served()
            await asyncio.sleep(self._rng.uniform(*NOTICE))
            late = asyncio.get_running_loop().time() >= due
            if self._runtime.daemon.serving and (late or not self._runtime.running(worker.uid)):
                return

    async def _stop_sandbox(self, worker: Worker) -> None:
        try:
            await self._cri.stop_sandbox(worker.sandbox, timeout=4.0)
        except CriError:
            return  # the kill at the pod's deletion does it

    async def _finish(self, worker: Worker) -> None:
        """Report the end, then take the object away, as the status manager does."""
        process = worker.process
        if process is not None and not worker.over:
            await self._report(worker, ended_status(worker.container["name"], process, ""))
        meta = worker.pod.metadata
        for _ in range(API_TRIES):
            try:
                await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0)
                return
            except (NotFound, Conflict):
                return
            except (ApiError, TransportError):
                await asyncio.sleep(API_RETRY)

    async def _report(self, worker: Worker, status: dict[str, Any]) -> None:
        meta = worker.pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": status}
        for _ in range(API_TRIES):
            try:
                await self._client.patch(
                    FULL_PODS,
                    meta.name,
                    body,
                    meta.namespace,
                    subresource="status",
                    content_type=STRATEGIC_MERGE_PATCH,
                )
                return
            except (NotFound, Invalid):  # it is another pod by now
                return
            except (ApiError, TransportError):
                await asyncio.sleep(API_RETRY)

    async def _orphans(self, pods: Informer[FullPod]) -> None:
        """Containers whose pod is not in the API any more (it went while we were away) are stopped."""
        await pods.synced.wait()
        while True:
            await asyncio.sleep(2.0)
            self._here(frozenset(pod.metadata.name for pod in pods.store.list()))
            known = set(self._workers)
            orphans = {p.pod_uid for p in self._runtime.processes.values()} - known
            for uid in sorted(orphans):
                await self._stop_orphan(uid)

    async def _stop_orphan(self, uid: str) -> None:
        boxes = [s.id for s in self._runtime.sandboxes.values() if s.pod_uid == uid]
        try:
            for box in boxes:
                await self._cri.stop_sandbox(box, timeout=4.0)
        except CriError:
            return
        self._runtime.remove_pod(uid)


def _hook(container: Mapping[str, Any], process: Process) -> payload.Behaviour | None:
    command = (container.get("lifecycle") or {}).get("preStop", {}).get("exec", {}).get("command")
    if process.behaviour.hook_restarts:
        return replace(payload.parse(command or ()), restarts=1)
    return payload.parse(command) if command else None


async def _changed(worker: Worker, seconds: float | None = None) -> None:
    worker.changed.clear()
    try:
        async with asyncio.timeout(seconds):
            await worker.changed.wait()
    except TimeoutError:
        return


async def _changed_to_die(worker: Worker, seconds: float) -> None:
    """Wait, but not past the pod's deletion."""
    end = asyncio.get_running_loop().time() + seconds
    while not worker.deleting and (left := end - asyncio.get_running_loop().time()) > 0:
        await _changed(worker, left)


async def _either(worker: Worker, ended: asyncio.Event) -> None:
    """Wait for an event of the pod or the end of its container."""
    if ended.is_set():
        return
    worker.changed.clear()
    waits = {asyncio.ensure_future(worker.changed.wait()), asyncio.ensure_future(ended.wait())}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
