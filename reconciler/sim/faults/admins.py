"""What admins do to Nodes and to objects of ours. What somebody needs to go on, they put right in the end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.kube.resources import CONTROLLERREVISIONS, PODS, RUNTIMECLASSES
from reconciler.sim import kinds
from reconciler.sim.cluster import Foreign
from reconciler.sim.faults import people
from reconciler.sim.faults.registry import World, fault
from reconciler.sim.kinds import Object

WHILE_SECONDS = (5.0, 180.0)
HOSTNAME = "kubernetes.io/hostname"
TAINT = {"key": "example.org/maintenance", "effect": "NoSchedule"}
WORKLOADS = "default"
"""Namespace of other people's pods."""


@fault("cordon", once=True)
async def cordon(world: World, rng: random.Random) -> None:
    """An admin cordons a node, and uncordons it after a while."""
    node, seconds = world.some_living(rng), rng.uniform(*WHILE_SECONDS)
    if node is None or not await people.edit_node(world, node.name, _cordoned):
        return
    world.say(f"cordon: {node.name} for {seconds:.0f} s")
    with people.standing(world, Foreign("cordon", node.name, "", "")):
        try:
            await asyncio.sleep(seconds)
        finally:
            people.forget(world, lambda thing: (thing.kind, thing.node) == ("cordon", node.name))
            await people.edit_node(world, node.name, lambda obj: {"spec": {"unschedulable": None}})


@fault("taint", once=True)
async def taint(world: World, rng: random.Random) -> None:
    """An admin taints a node, and takes the taint off after a while."""
    node, seconds = world.some_living(rng), rng.uniform(*WHILE_SECONDS)
    if node is None or not await people.edit_node(world, node.name, _tainted):
        return
    world.say(f"taint: {node.name} for {seconds:.0f} s")
    with people.standing(world, Foreign("taint", node.name, TAINT["key"], TAINT["effect"])):
        try:
            await asyncio.sleep(seconds)
        finally:
            people.forget(world, lambda thing: (thing.kind, thing.node) == ("taint", node.name))
            await people.edit_node(world, node.name, _untainted)


@fault("label", once=True)
async def label(world: World, rng: random.Random) -> None:
    """An admin sets a label and an annotation of their own on a node, and takes them off after a while."""
    node, key, value = world.some_living(rng), f"example.org/note-{rng.randrange(1000)}", str(rng.randrange(1000))
    if node is None or not await people.mark_node(world, node.name, "labels", {key: value}):
        return
    await people.mark_node(world, node.name, "annotations", {key: value})
    world.say(f"label: {key}={value} on {node.name}, and an annotation")
    things = [Foreign(kind, node.name, key, value) for kind in ("label", "annotation")]
    with people.standing(world, things[0]), people.standing(world, things[1]):
        try:
            await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
        finally:
            people.forget(world, lambda thing: thing in things)
            await people.mark_node(world, node.name, "labels", {key: None})
            await people.mark_node(world, node.name, "annotations", {key: None})


@fault("deselected", once=True)
async def deselected(world: World, rng: random.Random) -> None:
    """An admin takes a label that a nodeSelector asks for off a node, and puts it back after a while."""
    node, keys = world.some_living(rng), sorted(_selected_by(world))
    if node is None or not keys:
        return
    key = rng.choice(keys)
    value = _marks(world, node.name, "labels").get(key)
    if value is None:
        return
    world.say(f"deselected: {key}={value} is taken off {node.name}")
    try:
        await people.mark_node(world, node.name, "labels", {key: None})
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        await people.mark_node(world, node.name, "labels", {key: value})


@fault("relabelled", once=True)
async def relabelled(world: World, rng: random.Random) -> None:
    """A kubelet registers its node anew: all labels and annotations are lost; those of the machine come back later."""
    node = world.some_living(rng)
    if node is None:
        return
    world.say(f"relabelled: {node.name} loses labels and annotations")
    people.forget(world, lambda thing: thing.node == node.name and thing.kind in ("label", "annotation"))
    labels = {key: None for key in _marks(world, node.name, "labels") if key != HOSTNAME}
    try:
        await people.mark_node(world, node.name, "labels", dict(labels))
        await people.mark_node(world, node.name, "annotations", dict.fromkeys(_marks(world, node.name, "annotations")))
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        await people.mark_node(world, node.name, "labels", {**node.labels})


@fault("our-labels", once=True)
async def our_labels(world: World, rng: random.Random) -> None:
    """An admin changes or takes off a label of ours on a node."""
    node = world.some_living(rng)
    keys = [] if node is None else [key for key in sorted(_marks(world, node.name, "labels")) if _ours(key)]
    if node is None or not keys:
        return
    key, value = rng.choice(keys), rng.choice((None, "edited"))
    world.say(f"our-labels: {key} of {node.name} is {'gone' if value is None else value}")
    await people.mark_node(world, node.name, "labels", {key: value})


@fault("our-annotations", once=True)
async def our_annotations(world: World, rng: random.Random) -> None:
    """An admin garbles or deletes an annotation of ours on a node; one that is garbled they put right later."""
    node = world.some_living(rng)
    marks = {} if node is None else _marks(world, node.name, "annotations")
    keys = [key for key in sorted(marks) if _ours(key) and not _garbled(marks[key])]
    if node is None or not keys:
        return
    key, garbled = rng.choice(keys), rng.choice((None, "{", marks[rng.choice(keys)][:20]))
    old = marks[key]
    world.say(f"our-annotations: {key} of {node.name} is {'gone' if garbled is None else repr(garbled)}")
    try:
        await people.mark_node(world, node.name, "annotations", {key: garbled})
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        if garbled is not None and _marks(world, node.name, "annotations").get(key) == garbled:
            await people.mark_node(world, node.name, "annotations", {key: old})


def _garbled(text: str) -> bool:
    """Somebody else is at it, and puts it right."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return True
    return False


@fault("agent-pod-deleted")
async def agent_pod_deleted(world: World, rng: random.Random) -> None:
    """Somebody deletes the pod of an agent; its DaemonSet makes another one."""
    node = world.some_living(rng)
    if node is None:
        return
    world.say(f"agent-pod-deleted: that of {node.name}")
    try:
        await node.withdraw_agent()
        await asyncio.sleep(rng.uniform(1.0, 10.0))
    finally:
        node.release_agent()


@fault("class-deleted", once=True)
async def class_deleted(world: World, rng: random.Random) -> None:
    """An admin deletes a RuntimeClass of ours."""
    found = _of_ours(world, kinds.RUNTIMECLASSES)
    if found:
        name = rng.choice(found)["metadata"]["name"]
        world.say(f"class-deleted: {name}")
        await people.persist(lambda: world.cluster.admin.delete(RUNTIMECLASSES, name))


@fault("class-edited", once=True)
async def class_edited(world: World, rng: random.Random) -> None:
    """An admin takes our marks off a RuntimeClass of ours, and puts them back after a while."""
    found = _of_ours(world, kinds.RUNTIMECLASSES)
    if not found:
        return
    meta = rng.choice(found)["metadata"]
    marks = {part: dict(meta.get(part) or {}) for part in ("labels", "annotations")}
    world.say(f"class-edited: {meta['name']} loses its marks")

    async def put(body: dict[str, Any]) -> None:
        where = {**body, "uid": meta["uid"]}
        await people.persist(lambda: world.cluster.admin.patch(RUNTIMECLASSES, meta["name"], {"metadata": where}))

    try:
        await put({part: dict.fromkeys(marks[part]) for part in marks})
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        await put(marks)


@fault("revision-deleted", once=True)
async def revision_deleted(world: World, rng: random.Random) -> None:
    """An admin deletes a ControllerRevision of ours, and brings it back from a backup after a while."""
    found = _of_ours(world, kinds.CONTROLLERREVISIONS)
    if not found:
        return
    chosen = rng.choice(found)
    meta = chosen["metadata"]
    kept = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
    backup = {**chosen, "metadata": kept}
    world.say(f"revision-deleted: {meta['name']}")
    try:
        await people.persist(
            lambda: world.cluster.admin.delete(CONTROLLERREVISIONS, meta["name"], meta["namespace"], uid=meta["uid"])
        )
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        if _needed(world, meta):
            await people.persist(lambda: world.cluster.admin.create(CONTROLLERREVISIONS, backup, meta["namespace"]))


@fault("workload", once=True)
async def workload(world: World, rng: random.Random) -> None:
    """A pod of somebody's uses a handler of ours for a while."""
    found, node = _of_ours(world, kinds.RUNTIMECLASSES), world.some_living(rng)
    served = [] if node is None else [c for c in found if c["handler"] in node.daemon.loaded.handlers]
    if node is None or not served:
        return
    chosen, name = rng.choice(served)["metadata"]["name"], f"uses-{rng.randrange(1_000_000)}"
    spec = {
        "nodeName": node.name,
        "runtimeClassName": chosen,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": rng.choice((0, 1, 30)),
        "containers": [{"name": "main", "image": "sim/payload:1", "args": ["hang"]}],
    }
    world.say(f"workload: {name} on {node.name} with {chosen}")
    try:
        body = {"metadata": {"name": name}, "spec": spec}
        await people.persist(lambda: world.cluster.admin.create(PODS, body, WORKLOADS))
        await asyncio.sleep(rng.uniform(*WHILE_SECONDS))
    finally:
        await people.persist(lambda: world.cluster.admin.delete(PODS, name, WORKLOADS))


def _cordoned(obj: Object) -> Object | None:
    return None if obj.get("spec", {}).get("unschedulable") else {"spec": {"unschedulable": True}}


def _tainted(obj: Object) -> Object | None:
    there = obj.get("spec", {}).get("taints") or []
    return None if TAINT in there else {"spec": {"taints": [*there, TAINT]}}


def _untainted(obj: Object) -> Object | None:
    there = obj.get("spec", {}).get("taints") or []
    return {"spec": {"taints": [one for one in there if one != TAINT]}} if TAINT in there else None


def _marks(world: World, name: str, part: str) -> dict[str, str]:
    found = people.stored(world, kinds.NODES, name)
    return {} if found is None else dict(found["metadata"].get(part) or {})


def _ours(key: str) -> bool:
    return names.GROUP in key or key.startswith(names.PRESENT_LABEL_PREFIX)


def _of_ours(world: World, kind: kinds.Kind) -> list[Object]:
    objects = (record.object for _, record in world.cluster.server.store.all(kind))
    return [obj for obj in objects if names.RUNTIME_LABEL in (obj["metadata"].get("labels") or {})]


def _selected_by(world: World) -> set[str]:
    """Labels of Nodes that a NodeRuntime asks for."""
    found: set[str] = set()
    for name in world.runtimes():
        spec = (people.stored(world, kinds.NODERUNTIMES, name) or {}).get("spec") or {}
        selector = spec.get("nodeSelector") or {}
        found |= {*(selector.get("matchLabels") or {})}
        found |= {one["key"] for one in selector.get("matchExpressions") or ()}
    return found


def _needed(world: World, meta: Object) -> bool:
    """Whether the NodeRuntime that a revision was made for is still there: nobody restores what nobody misses."""
    owner = people.stored(world, kinds.NODERUNTIMES, meta["labels"][names.RUNTIME_LABEL])
    return owner is not None and owner["metadata"]["uid"] == (meta.get("annotations") or {}).get(names.UID_ANNOTATION)
