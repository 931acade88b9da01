"""What goes wrong in payloads, and with the pods that run them. A twist befalls the next container of a phase pod."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

from reconciler.api import names
from reconciler.kube.resources import PODS
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from reconciler.sim import kinds, payload
from reconciler.sim.faults import people
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.kinds import Object
from reconciler.sim.payload import Behaviour
from reconciler.sim.podstatus import ended_status, failed_status

PATIENCE = 120.0
"""Seconds for which the start of a payload is waited for."""
LATE_SECONDS = (20.0, 240.0)
AGAIN_SECONDS = (0.5, 20.0)
MISSING_SECONDS = (5.0, 120.0)
DYING_SECONDS = (0.0, 2.0)
LOOK = 0.05
NOWHERE = "/no/such/file"
LOG = "cannot unpack the archive: no space left on device\n" * 100
"""What a script leaves that tries again until it gives up."""

Twist = Callable[[Behaviour], Behaviour]


@fault("payload-crashes", once=True)
async def crashes(world: World, rng: random.Random) -> None:
    """A payload fails, before or after its work."""
    after = rng.random() < 0.5

    def twist(behaviour: Behaviour) -> Behaviour:
        if after:
            return replace(behaviour, exit_code=1, hang=False, label=None, log=LOG)
        return replace(behaviour, needs=NOWHERE, log=LOG)

    await _twisted(world, rng, f"payload-crashes: {'after' if after else 'before'} its work", twist)


@fault("payload-oom", once=True)
async def oom(world: World, rng: random.Random) -> None:
    """A payload is killed for want of memory."""
    await _twisted(world, rng, "payload-oom: once", lambda behaviour: replace(behaviour, oom=True))


@fault("payload-hangs", once=True)
async def hangs(world: World, rng: random.Random) -> None:
    """A payload does its work and never says so, sometimes deaf to SIGTERM."""
    deaf = rng.random() < 0.5
    await _twisted(
        world,
        rng,
        "payload-hangs: silent",
        lambda b: replace(b, hang=True, label=None, ignores_term=deaf or b.ignores_term),
    )


@fault("payload-late", once=True)
async def late(world: World, rng: random.Random) -> None:
    """A payload takes long until it says that it is done."""
    seconds = rng.uniform(*LATE_SECONDS)
    await _twisted(world, rng, f"payload-late: by {seconds:.0f} s", lambda b: replace(b, seconds=b.seconds + seconds))


@fault("payload-says-twice", once=True)
async def says_twice(world: World, rng: random.Random) -> None:
    """A payload says twice that it is done."""
    seconds = rng.uniform(*AGAIN_SECONDS)
    await _twisted(world, rng, f"payload-says-twice: after {seconds:.1f} s", lambda b: replace(b, again=seconds))


@fault("payload-restarts-containerd")
async def restarts_containerd(world: World, rng: random.Random) -> None:
    """A payload restarts containerd in the middle of its work."""
    times = rng.randint(1, 3)
    await _twisted(world, rng, f"payload-restarts-containerd: {times} times", lambda b: replace(b, restarts=times))


@fault("hook-restarts-containerd")
async def hook_restarts_containerd(world: World, rng: random.Random) -> None:
    """A payload's preStop hook restarts containerd, at each try of kubelet to kill it."""
    await _twisted(world, rng, "hook-restarts-containerd: once", lambda b: replace(b, hook_restarts=True))


@fault("payload-restarts-kubelet")
async def restarts_kubelet(world: World, rng: random.Random) -> None:
    """A payload restarts kubelet in the middle of its work."""
    await _twisted(world, rng, "payload-restarts-kubelet: once", lambda b: replace(b, restarts_kubelet=True))


@fault("image-missing", once=True)
async def image_missing(world: World, rng: random.Random) -> None:
    """Images of payloads cannot be pulled on one node for a while."""
    node, seconds = world.some_living(rng, lambda n: not n.missing), rng.uniform(*MISSING_SECONDS)
    if node is None:
        return
    world.say(f"image-missing: on {node.name} for {seconds:.0f} s")
    node.missing.add(payload.IMAGE)
    try:
        await asyncio.sleep(seconds)
    finally:
        node.missing.discard(payload.IMAGE)


@fault("old-signal", once=True)
async def old_signal(world: World, rng: random.Random) -> None:
    """A payload that is being killed says with its last breath that it is done."""
    end, breath = _now() + PATIENCE, rng.uniform(*DYING_SECONDS)
    known = {pod["metadata"]["uid"] for pod in phase_pods(world) if _dying(pod)}
    while _now() < end:
        await asyncio.sleep(LOOK)
        for pod in phase_pods(world):
            label, node = _signal(pod), world.cluster.nodes.get(pod["spec"]["nodeName"])
            if not _dying(pod) or pod["metadata"]["uid"] in known or label is None or node is None:
                continue
            await asyncio.sleep(breath)
            if node.runtime.running(pod["metadata"]["uid"]):  # the dead say nothing
                world.say(f"old-signal: {pod['metadata']['name']} says {label[0]}={label[1]}")
                await people.mark_node(world, node.name, "labels", {label[0]: label[1]})
            return


@fault("phase-pod-deleted", once=True)
async def phase_pod_deleted(world: World, rng: random.Random) -> None:
    """Somebody deletes a phase pod, by force or with its grace."""
    pod, grace = await _some_pod(world, rng), rng.choice((0, None))
    if pod is None:
        return
    meta = pod["metadata"]
    world.say(f"phase-pod-deleted: {meta['name']}{' by force' if grace == 0 else ''}")
    await people.persist(
        lambda: world.cluster.admin.delete(PODS, meta["name"], meta["namespace"], uid=meta["uid"], grace_seconds=grace)
    )


@fault("phase-pod-evicted", once=True)
async def phase_pod_evicted(world: World, rng: random.Random) -> None:
    """A kubelet short of disk ends a phase pod: Failed, Evicted.

    A pod is Failed only when none of its containers can run any more, and says how they ended
    (`mergePodStatus` in `pkg/kubelet/status/status_manager.go` of Kubernetes 1.34). One that has ended by itself is
    left alone.
    """
    pod = await _some_pod(world, rng)
    node = None if pod is None else world.cluster.nodes.get(pod["spec"]["nodeName"])
    if pod is None or node is None:
        return
    meta = pod["metadata"]
    running = node.runtime.running(meta["uid"])
    if not running and any(process.pod_uid == meta["uid"] for process in node.runtime.processes.values()):
        return
    world.say(f"phase-pod-evicted: {meta['name']}")
    status = failed_status("Evicted", "The node was low on resource: ephemeral-storage.")
    for process in running:
        node.runtime.kill(process)
        status = {**ended_status(pod["spec"]["containers"][0]["name"], process, ""), **status}
    body = {"metadata": {"uid": meta["uid"]}, "status": status}
    await people.persist(
        lambda: world.cluster.admin.patch(
            PODS, meta["name"], body, meta["namespace"], subresource="status", content_type=STRATEGIC_MERGE_PATCH
        )
    )


def phase_pods(world: World) -> list[Object]:
    """In the order of their names."""
    pods = (record.object for _, record in world.cluster.server.store.all(kinds.PODS))
    return [
        pod for pod in pods if (pod["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE
    ]


async def _some_pod(world: World, rng: random.Random) -> Object | None:
    """One that is not being deleted yet, as soon as there is one."""
    end = _now() + PATIENCE
    while _now() < end:
        if living := [pod for pod in phase_pods(world) if not _dying(pod)]:
            await asyncio.sleep(rng.uniform(0.0, 3.0))
            return rng.choice(living)
        await asyncio.sleep(LOOK)
    return None


def _dying(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _signal(pod: Object) -> tuple[str, str] | None:
    return payload.parse(pod["spec"]["containers"][0].get("args", ())).label


async def _twisted(world: World, rng: random.Random, what: str, twist: Twist) -> None:
    """The next payload on some node behaves so; none that begins later than PATIENCE."""
    node, begun = world.some_living(rng), asyncio.Event()
    if node is None:
        return

    def befall(behaviour: Behaviour) -> Behaviour:
        world.say(f"{what}, on {node.name}")
        begun.set()
        return twist(behaviour)

    node.runtime.twists.append(befall)
    try:
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
    except TimeoutError:
        return
    finally:
        if befall in node.runtime.twists:
            node.runtime.twists.remove(befall)


def _now() -> float:
    return asyncio.get_running_loop().time()
