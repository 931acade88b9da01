"""One simulated machine: its disk, containerd, systemd, kubelet, and the agent that runs on it."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from reconciler.api import names
from reconciler.api.clock import rfc3339
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, NotFound, TransportError
from reconciler.kube.resources import NODES, PODS
from reconciler.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from reconciler.sim import deadman
from reconciler.sim.clock import Skewed
from reconciler.sim.containerd import Daemon
from reconciler.sim.kubelet import Kubelet
from reconciler.sim.life import Life, MortalCri, MortalSystemd, Step, unwatched
from reconciler.sim.link import Link
from reconciler.sim.runtime import Runtime, SimCri
from reconciler.sim.systemd import SimSystemd

log = logging.getLogger(__name__)

CONFIG = """\
version = 2

# kept by hand
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"

[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""
"""/etc/containerd/config.toml of a fresh node, as kubeadm's documentation has it."""
NOT_READY_AFTER = 30.0
"""Seconds without CRI until kubelet says NotReady: measured 26 to 40."""
STATUS_PERIOD = 1.0
API_RETRY = 0.5
KUBELET_START = 1.0
"""Seconds from the stop of a kubelet until the next one works: measured 0.5 to 2."""
AGENT_MISSED = 3
"""Looks of a kubelet, 2 s apart, after which a pod that it does not see is gone: its watch may lag."""
AGENT_BACKOFF = 2.0
"""Seconds until kubelet starts a crashed agent again."""


class Runnable(Protocol):
    async def run(self) -> None: ...


class SimNode:
    """`run` is the machine being on; `power_off` ends it, and a later `run` boots the same disk."""

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        connect: Callable[[str], Link],
        clock: Skewed,
        rng: random.Random,
        namespace: str,
        agent: Callable[[SimNode, Client], Runnable] | None,
        labels: dict[str, str] | None = None,
        images: set[str] | None = None,
    ) -> None:
        """`connect(user)` opens a link to the API server; `agent` makes the agent that runs here.

        `images`: what the registry offers beside the images of `sim.payload`.
        """
        self.name = name
        self.root = root
        self.namespace = namespace
        self.clock = clock
        self.rng = rng
        self.labels = labels or {}
        self.images = set() if images is None else images
        self.missing: set[str] = set()
        """Beginnings of images that this node cannot pull now."""
        self.agent_link = connect(f"agent:{name}")
        self.kubelet_link = connect(f"kubelet:{name}")
        self.client = Client(self.kubelet_link, rng=rng)
        self.machine_id = f"{rng.getrandbits(128):032x}"
        self.boot_id = ""
        self.agent: Runnable | None = None
        self.stops = 0
        """Containers and sandboxes that the agent has stopped through CRI."""
        self.step: Step = unwatched
        """Told of all that its agent does outside itself, but for requests to the API server."""
        self.on_step: list[Callable[[str], None]] = []
        """Called before each step by which the agent changes the disk or the unit; one may raise OSError."""
        self.refusals = 0
        """Steps of an agent's change that the disk has refused."""
        self.heard = 0.0
        """Monotonic seconds: when the API server heard of this kubelet last."""
        self.doubted = False
        """The API says Ready=Unknown."""
        self._agent_replaced = asyncio.Event()
        self._kubelet_task: asyncio.Task[None] | None = None
        self._make_agent = agent
        self._agent_wanted = asyncio.Event()
        self._agent_wanted.set()
        self._agent_missed = 0
        """How often in a row its kubelet has not seen its pod in the API."""
        self._holds = 0
        """How often the agent was held back."""
        self.life = Life()
        self._on = asyncio.Event()
        self.daemon = Daemon(root, rng=rng)
        self.runtime = Runtime(self.daemon, host=self, clock=clock, rng=rng)
        self.write_disk()

    def replace_machine(self) -> None:
        """Another machine under this name, or this one with its root made anew: nothing of the old disk is left.

        It must be off. Its machine id is another one, as systemd makes one at the first boot (machine-id(5)).
        """
        shutil.rmtree(self.root)
        self.machine_id = f"{self.rng.getrandbits(128):032x}"
        self.runtime.sandboxes.clear()
        self.runtime.processes.clear()
        self.write_disk()

    def write_disk(self) -> None:
        """A fresh root."""
        config = self.root / "etc/containerd/config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG)
        (self.root / "opt").mkdir(exist_ok=True)
        (self.root / "run/containerd").mkdir(parents=True, exist_ok=True)
        (self.root / "var/lib").mkdir(parents=True, exist_ok=True)

    async def run(self) -> None:
        """From power on until cancelled."""
        self.boot_id = f"{self.rng.getrandbits(128):032x}"
        self.agent_link.cut = self.kubelet_link.cut = False
        async with asyncio.TaskGroup() as tasks:
            self.daemon.tasks = tasks
            self._systemd = SimSystemd(self.daemon, tasks=tasks, fire=self._dead_man)
            self._tasks = tasks
            await self.daemon.start("boot")
            await self._register()
            self._start_kubelet()
            tasks.create_task(self._status())
            if self._make_agent is not None:
                tasks.create_task(self._agent())
            self._on.set()

    async def up(self) -> None:
        """Returns when the machine has booted."""
        await self._on.wait()

    def power_off(self) -> None:
        """What a loss of power leaves: a disk, and no process. `run` has been cancelled before."""
        self._on.clear()
        self.life.ended.set()
        self.daemon.power_off()
        self.runtime.power_off()

    # --- what payloads may do ---

    async def restart_containerd(self, initiator: str) -> None:
        await self.daemon.restart(initiator)

    async def restart_kubelet(self) -> None:
        """What it had in hand it finds again in CRI and in the API; containers do not notice.

        At its start it registers its node, as at boot. It is systemd that does it: whoever asked may die meanwhile.
        """
        await self.do(self._restart_kubelet())

    async def _restart_kubelet(self) -> None:
        self.stop_kubelet()
        await self.start_kubelet()

    async def start_kubelet(self) -> None:
        """Returns when it works."""
        await asyncio.sleep(KUBELET_START)
        await self._register()
        self._start_kubelet()

    def stop_kubelet(self) -> None:
        """Containers do not notice."""
        if self._kubelet_task is not None:
            self._kubelet_task.cancel()

    async def label(self, key: str, value: str) -> None:
        await self._unless_gone(lambda: self.client.patch(NODES, self.name, {"metadata": {"labels": {key: value}}}))

    # --- what faults may do ---

    async def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Until it is done, or the machine is off; it goes on when the caller is cancelled, as systemd's jobs do."""
        if not self._on.is_set():
            work.close()
            return
        await asyncio.wait({self._tasks.create_task(work)})

    def replace_agent(self) -> None:
        """containerd is of another version: the process looks at the host anew (`agent.lives`)."""
        self._agent_replaced.set()

    async def outage(self, seconds: float) -> None:
        """containerd is stopped for a while, and started again by whoever stopped it."""
        await self.daemon.stop()
        await asyncio.sleep(seconds)
        await self.daemon.start("fault")

    def crash_agent(self) -> None:
        """SIGKILL: nothing more of it reaches the API server."""
        self.agent_link.cut = True
        self.life.ended.set()

    def hold_agent(self) -> None:
        """Killed, and not started again: its image is gone, or its container crashes at once. Its pod is not Ready."""
        self._agent_wanted.clear()
        self._holds += 1
        self.crash_agent()

    async def withdraw_agent(self) -> None:
        """The DaemonSet does not want this node any more: its pod is gone."""
        self.hold_agent()
        await self._unless_gone(lambda: self.client.delete(PODS, self._agent_pod_name, self.namespace, grace_seconds=0))

    def release_agent(self) -> None:
        """What kept the agent away is over."""
        self._agent_wanted.set()

    # --- what the agent gets ---

    def cri(self) -> MortalCri:
        """CRI for the agent's present life."""
        return MortalCri(SimCri(self.runtime), self.life, stopped=self._stopped)

    def systemd(self) -> MortalSystemd:
        """The system bus for the agent's present life."""
        return MortalSystemd(self._systemd, self.life)

    # --- inside ---

    def _start_kubelet(self) -> None:
        self.stop_kubelet()
        self.kubelet = Kubelet(
            self.client,
            self.name,
            self.runtime,
            clock=self.clock,
            rng=self.rng,
            images=self.images,
            missing=self.missing,
            here=self._see_pods,
        )
        self._kubelet_task = self._tasks.create_task(self.kubelet.run())

    def _stopped(self) -> None:
        self.stops += 1

    @property
    def first_labels(self) -> dict[str, str]:
        """With which its Node is made."""
        return {"kubernetes.io/hostname": self.name, **self.labels}

    async def _register(self) -> None:
        meta = {"name": self.name, "labels": self.first_labels}
        try:
            await self._api(lambda: self.client.create(NODES, {"metadata": meta}))
        except AlreadyExists:
            log.debug("node is known", extra={"node": self.name})
        await self._patch_status({"nodeInfo": self._info(), "conditions": [self._ready("True", "KubeletReady")]})

    def _info(self) -> dict[str, str]:
        return {
            "machineID": self.machine_id,
            "bootID": self.boot_id,
            "containerRuntimeVersion": f"containerd://{self.daemon.version}",
            "kubeletVersion": "v1.34.0",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }

    async def _status(self) -> None:
        """NotReady after CRI has been away for long; Ready again as soon as it serves."""
        ready, since, version = True, self._now(), self.daemon.version
        self.heard = self._now()
        while True:
            await asyncio.sleep(STATUS_PERIOD)
            if not self.kubelet_link.cut:
                self.heard = self._now()
            if self.daemon.serving:
                since = self._now()
            if self.daemon.serving and self.daemon.version != version:
                version = self.daemon.version
                await self._patch_status({"nodeInfo": self._info()})
            now_ready = self._now() - since < NOT_READY_AFTER
            if now_ready != ready or (self.doubted and not self.kubelet_link.cut):
                ready, self.doubted = now_ready, False
                condition = self._ready("True", "KubeletReady") if ready else self._ready("False", "KubeletNotReady")
                await self._patch_status({"conditions": [condition]})

    def _ready(self, status: str, reason: str) -> dict[str, Any]:
        return {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "lastTransitionTime": rfc3339(self.clock.now()),
        }

    async def _patch_status(self, status: dict[str, Any]) -> None:
        await self._unless_gone(
            lambda: self.client.patch(
                NODES, self.name, {"status": status}, subresource="status", content_type=STRATEGIC_MERGE_PATCH
            )
        )

    async def _agent(self) -> None:
        """What the agent's DaemonSet and kubelet do: its pod, Ready while it runs, started again after a crash."""
        while self._make_agent is not None:
            await self._agent_wanted.wait()
            holds = self._holds
            await self._node_known()
            await self._agent_pod()
            await self.daemon.served()  # a kubelet starts no container without CRI
            if holds != self._holds:
                continue  # that pod may be gone
            self.agent_link.cut = False
            self._agent_replaced.clear()
            self.life = Life(self.step)
            self.agent = self._make_agent(self, Client(self.agent_link, rng=self.rng))
            await self._agent_ready("True")
            await self._supervise(self.agent)
            if self._agent_replaced.is_set():
                continue
            await self._agent_ready("False")
            await asyncio.sleep(AGENT_BACKOFF)

    async def _supervise(self, agent: Runnable) -> None:
        """Until it ends, is killed (and then nobody waits for it), or is to be replaced (it ends what it does)."""
        running = self.life.start(agent.run())
        killed = asyncio.ensure_future(self.life.ended.wait())
        replaced = asyncio.ensure_future(self._agent_replaced.wait())
        try:
            await asyncio.wait({running, killed, replaced}, return_when=asyncio.FIRST_COMPLETED)
            if replaced.done() and not self.life.ended.is_set():
                running.cancel()
                await asyncio.wait({running, killed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            replaced.cancel()
            killed.cancel()
            running.cancel()
            if self.life.ended.is_set():
                self._bury(running)
        if running.done() and not running.cancelled():
            log.error("agent ended", extra={"node": self.name}, exc_info=running.exception())

    def _bury(self, running: asyncio.Future[None]) -> None:
        """Nobody asks what a killed process came to."""
        running.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    @property
    def _agent_pod_name(self) -> str:
        return f"reconciler-agent-{self.name}"

    async def _agent_pod(self) -> None:
        body = {
            "metadata": {
                "name": self._agent_pod_name,
                "labels": {names.COMPONENT_LABEL: names.COMPONENT_AGENT},
            },
            "spec": {"nodeName": self.name, "containers": [{"name": "agent", "image": "agent"}]},
        }
        try:
            await self._api(lambda: self.client.create(PODS, body, self.namespace))
        except AlreadyExists:
            log.debug("agent pod is known", extra={"node": self.name})
        self._agent_missed = 0

    async def _node_known(self) -> None:
        """A DaemonSet makes pods for Nodes that there are."""
        while True:
            try:
                await self._api(lambda: self.client.get(NODES, self.name))
                return
            except NotFound:
                await asyncio.sleep(AGENT_BACKOFF)

    def _see_pods(self, pods: frozenset[str]) -> None:
        """Names of those that the API has for this node: an agent whose pod is gone is killed, and gets another one."""
        self._agent_missed = 0 if self._agent_pod_name in pods else self._agent_missed + 1
        if self.agent is not None and self._agent_missed == AGENT_MISSED and not self.life.ended.is_set():
            self.crash_agent()

    async def _agent_ready(self, status: str) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": rfc3339(self.clock.now())}
        body = {"status": {"phase": "Running", "conditions": [condition]}}
        await self._unless_gone(
            lambda: self.client.patch(
                PODS,
                self._agent_pod_name,
                body,
                self.namespace,
                subresource="status",
                content_type=MERGE_PATCH,
            )
        )

    async def _unless_gone(self, call: Callable[[], Any]) -> None:
        """As `_api`, for an object that somebody may have deleted: a kubelet registers its node at its start only."""
        try:
            await self._api(call)
        except NotFound:
            log.debug("the object is gone", extra={"node": self.name})

    async def _api(self, call: Callable[[], Any]) -> None:
        """Until the API server has answered."""
        while True:
            try:
                await call()
                return
            except (AlreadyExists, NotFound):
                raise
            except (ApiError, TransportError) as error:
                log.debug("kubelet cannot reach the API server", extra={"node": self.name, "error": str(error)})
                await asyncio.sleep(API_RETRY)

    async def _dead_man(self, argv: tuple[str, ...]) -> None:
        """The transient service of the dead-man switch fired."""
        log.warning("dead-man switch fired", extra={"node": self.name})
        unit = self.daemon.unit
        verbs = await asyncio.to_thread(deadman.run, self.root, argv, active=unit.active, sub=unit.sub)
        if "reset-failed" in verbs:
            self.daemon.reset_failed()
        if "restart" in verbs:
            await self.daemon.restart("dead-man")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
