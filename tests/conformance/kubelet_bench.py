"""A kubelet under test, simulated or real: pods on its node, what befalls the node, and what is seen of both.

A pod's manifest is the same for both: a real node runs the shell script, a simulated one reads the words after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tests.conformance.api import NODES, Api, Object

IMAGE = "localhost/busybox:1"
NO_IMAGE = "localhost/none:1"
"""Nothing answers there, so a pull fails at once."""
PODS = "/api/v1/namespaces/default/pods"
MARKS = "/var/tmp/conformance-marks"
"""Folder of the node in which a pod's preStop hook leaves a letter each time that it runs, in a file of the pod."""
WORD = "conformance-way"
"""In the command line of the main process of each pod, and of nothing else."""
LOOK = 0.05
"""Seconds between two looks at what no watch tells."""
PATIENCE = 120.0
"""Seconds after which nothing is waited for any more: three times the slowest thing, a node's NotReady."""

Test = Callable[[Object | None], bool]


class Machine(Protocol):
    """The node below the kubelet."""

    name: str

    async def stop_containerd(self) -> None: ...
    async def start_containerd(self) -> None:
        """Returns when CRI serves."""

    async def stop_kubelet(self) -> None: ...
    async def start_kubelet(self) -> None: ...
    async def stop_sandbox(self, uid: str) -> None:
        """Through CRI, as the agent's kill retrier does; what runs in it is killed."""

    async def runs(self, uid: str) -> bool:
        """Whether the main process of the pod lives, whatever CRI says."""

    async def marks(self, name: str) -> int:
        """How often the preStop hook of the pod has run."""

    async def failed_kills(self, uid: str) -> int:
        """Kills of the pod that failed: a real kubelet makes an Event `FailedKillPod`, a simulated one counts."""


@dataclass(frozen=True)
class Program:
    """`script` for a real node, `words` for a simulated one."""

    script: str
    words: tuple[str, ...]


HEEDS = Program("trap 'exit 143' TERM; while :; do sleep 0.2; done", ("hang",))
DEAF = Program("trap : TERM; while :; do sleep 0.2; done", ("hang", "ignore-term"))


def ends(code: int, *, after: float = 1.0) -> Program:
    return Program(f"sleep {after}; exit {code}", (f"seconds={after}", f"exit={code}"))


@dataclass
class Story:
    """Every state of one pod that a watch has told, with the second in which it came; None: it is gone."""

    name: str
    uid: str
    states: list[tuple[float, Object | None]]
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> Object:
        """The last state that there was."""
        return next(obj for _, obj in reversed(self.states) if obj is not None)

    @property
    def reasons(self) -> list[str]:
        """Why the container waited, one after the other, without repetitions."""
        found: list[str] = []
        for _, obj in self.states:
            reason = str(state(obj).get("waiting", {}).get("reason", ""))
            if reason and found[-1:] != [reason]:
                found.append(reason)
        return found

    async def until(self, holds: Test) -> float:
        """The second of the first state that is so. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self.news.clear()
                for moment, obj in self.states:
                    if holds(obj):
                        return moment
                await self.news.wait()

    async def follow(self, api: Api) -> None:
        """Until the pod is gone."""
        version = self.last["metadata"]["resourceVersion"]
        query = {"resourceVersion": version, "fieldSelector": f"metadata.name={self.name}"}
        async with api.watch(PODS, **query) as watch:
            while self.states[-1][1] is not None:
                kind, obj = await watch.next(within=10 * PATIENCE)
                self.states.append((now(), None if kind == "DELETED" else obj))
                self.news.set()


@dataclass
class Bench:
    """One node, the API, and the tasks that watch its pods."""

    api: Api
    machine: Machine
    tasks: asyncio.TaskGroup

    @asynccontextmanager
    async def pod(
        self, name: str, program: Program, *, grace: int = 1, image: str = IMAGE, hook: bool = False
    ) -> AsyncIterator[Story]:
        """It is gone after the block, whatever came before."""
        name = f"{self.api.name}-{name}"
        body = manifest(name, self.machine.name, program, grace=grace, image=image, hook=hook)
        made = await self.api.make(PODS, body)
        story = Story(name, made.meta["uid"], [(now(), made.body)])
        following = self.tasks.create_task(story.follow(self.api))
        try:
            yield story
        finally:
            following.cancel()
            await self.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)

    async def delete(self, story: Story, grace: int | None = None) -> float:
        """Ask for the pod's deletion; the second in which it was asked for."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        asked = now()
        answer = await self.api.delete(f"{PODS}/{story.name}", **options)
        assert answer.status == 200, answer.body
        return asked

    async def dead(self, story: Story) -> float:
        """The second in which the pod's main process was seen to be gone. Raises TimeoutError."""
        return await self.look(lambda: self._is_dead(story.uid))

    async def marked(self, story: Story, count: int) -> float:
        """The second in which the hook was seen to have run so often. Raises TimeoutError."""
        return await self.look(lambda: self._has_marks(story.name, count))

    async def ready(self, status: str) -> float:
        """The second in which the node's condition Ready was seen to be so. Raises TimeoutError."""
        return await self.look(lambda: self._is_ready(status))

    async def look(self, holds: Callable[[], Awaitable[bool]]) -> float:
        """The second in which it was seen to be so. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if await holds():
                    return now()
                await asyncio.sleep(LOOK)

    async def _is_dead(self, uid: str) -> bool:
        return not await self.machine.runs(uid)

    async def _has_marks(self, name: str, count: int) -> bool:
        return await self.machine.marks(name) >= count

    async def _is_ready(self, status: str) -> bool:
        node = (await self.api.get(f"{NODES}/{self.machine.name}")).body
        return any(one["type"] == "Ready" and one["status"] == status for one in node["status"]["conditions"])


def manifest(name: str, node: str, program: Program, *, grace: int, image: str, hook: bool) -> Object:
    container: Object = {
        "name": "main",
        "image": image,
        "command": ["/bin/sh", "-c", program.script, WORD],
        "args": list(program.words),
        "volumeMounts": [{"name": "marks", "mountPath": MARKS}],
    }
    if hook:
        mark = [f"printf x >> {MARKS}/{name}", f"append={MARKS}/{name}:x", "seconds=0"]
        container["lifecycle"] = {"preStop": {"exec": {"command": ["/bin/sh", "-c", *mark]}}}
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "marks", "hostPath": {"path": MARKS, "type": "DirectoryOrCreate"}}],
        "containers": [container],
    }
    return {"metadata": {"name": name}, "spec": spec}


def now() -> float:
    """Seconds of the loop's clock, virtual on a simulated node."""
    return asyncio.get_running_loop().time()


def phase(obj: Object | None) -> str:
    return "" if obj is None else str(obj.get("status", {}).get("phase", ""))


def state(obj: Object | None) -> Object:
    """Of the pod's container; empty before a kubelet has told it."""
    found = ((obj or {}).get("status") or {}).get("containerStatuses") or [{}]
    return found[0].get("state") or {}


def container_id(obj: Object | None) -> str:
    found = ((obj or {}).get("status") or {}).get("containerStatuses") or [{}]
    return str(found[0].get("containerID", ""))


def is_running(obj: Object | None) -> bool:
    return phase(obj) == "Running" and "running" in state(obj)


def is_over(obj: Object | None) -> bool:
    return phase(obj) in ("Succeeded", "Failed")


def is_gone(obj: Object | None) -> bool:
    return obj is None


def end_of(story: Story) -> tuple[str, int, str]:
    """Phase, exit code and reason in the last state that there was."""
    ended = state(story.last).get("terminated") or {}
    return phase(story.last), ended.get("exitCode", -1), ended.get("reason", "")
