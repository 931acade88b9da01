"""Makes way for the removal of the product itself: in this order no NodeRuntime, no agent, no controller, no mark.

Each step can be repeated, so one that was cut short is simply run again. What is left afterwards are the manifests,
which belong to whoever applied them, and on each host the lock of `/var/lib/runtime-reconciler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from reconciler.api import names
from reconciler.api.meta import Node, condition
from reconciler.api.noderuntime import NodeRuntime
from reconciler.kube import stop
from reconciler.kube.client import Client
from reconciler.kube.errors import NotFound
from reconciler.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    LEASES,
    NODERUNTIMES,
    NODES,
    PODS,
    AnyResource,
)
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH

LOOK = 1.0
"""Seconds between two looks at what is waited for."""
PODS_WITHIN = 90.0
"""Seconds for the pods to end: an agent has 60 to finish what it has begun."""
AT_ONCE = 10
"""Nodes that are patched at the same time."""
NAMED = 10
"""Most nodes or pods that one line names."""
_TROUBLE = ("Stuck", "Degraded")
_ASKED = (names.RETRY_ANNOTATION_PREFIX, names.SKIP_ANNOTATION_PREFIX)
"""A person's requests, which nobody will heed any more."""

Tell = Callable[[str], None]
"""Takes one line for the person who waits."""


class NotYet(Exception):
    """Why the product must stay for now, and what to do."""


async def teardown(client: Client, *, namespace: str, delete: bool, timeout: float, tell: Tell) -> None:
    """With `delete` NodeRuntimes are deleted, else one that nobody has deleted is a reason to change nothing.

    `timeout` in seconds, until the last NodeRuntime has gone. Raises NotYet, ApiError, TransportError.
    """
    await _runtimes_gone(client, namespace, delete=delete, timeout=timeout, tell=tell)
    await _ended(client, namespace, tell)
    await _unmarked(client, tell)


async def _runtimes_gone(client: Client, namespace: str, *, delete: bool, timeout: float, tell: Tell) -> None:
    told = ""
    try:
        async with asyncio.timeout(timeout):
            while left := await _runtimes(client):
                await _asked_to_go(client, left, delete=delete, tell=tell)
                told, before = "; ".join([*map(_described, left), *await _stop(client, namespace)]), told
                if told != before:
                    tell(f"waiting for {told}")
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise NotYet(
            f"not gone after {timeout:.0f} s: {told}. Nothing of the product was removed, and nothing is lost: "
            "mend what is named, or wait longer, and run it again"
        ) from None
    tell("no NodeRuntime is left")


async def _runtimes(client: Client) -> list[NodeRuntime]:
    try:
        found, _ = await client.list(NODERUNTIMES)
    except NotFound:
        return []  # nor is there their definition
    return sorted(found, key=lambda runtime: runtime.metadata.name)


async def _asked_to_go(client: Client, left: list[NodeRuntime], *, delete: bool, tell: Tell) -> None:
    """Raises NotYet when one is there that nobody has deleted, and it is not for us to do so."""
    wanted = [runtime.metadata.name for runtime in left if runtime.metadata.deletion_timestamp is None]
    if wanted and not delete:
        raise NotYet(
            f"still wanted: NodeRuntime {', '.join(wanted)}. Only the controller can take a runtime off its nodes, so "
            "nothing was removed. Delete what is named and run it again (it waits for what is being deleted): "
            f"kubectl delete noderuntime {' '.join(wanted)}"
        )
    for name in wanted:
        tell(f"NodeRuntime {name} is deleted")
        await _delete(client, NODERUNTIMES, name)


async def _stop(client: Client, namespace: str) -> list[str]:
    """Why no deletion goes on, when everything is stopped."""
    try:
        found = await client.get(CONFIGMAPS, names.STOP_NAME, namespace)
    except NotFound:
        return []
    return [f"{stop.words(found)}: `kubectl reconciler resume` lets the deletion go on"]


def _described(runtime: NodeRuntime) -> str:
    """`kata (1 unconfigure, 2 uninstall)`, with what is wrong."""
    stages = ", ".join(f"{count} {stage}" for stage, count in sorted(runtime.status.stages.items()))
    found = [condition(runtime.status.conditions, kind) for kind in _TROUBLE]
    trouble = [f"{one.type}: {one.message}" for one in found if one is not None and one.status == "True"]
    if runtime.spec.paused:
        trouble.append("it is paused, and its deletion with it: set spec.paused to false")
    return " ".join(filter(None, (runtime.metadata.name, f"({stages})" if stages else "", "; ".join(trouble))))


async def _ended(client: Client, namespace: str, tell: Tell) -> None:
    """No agent that writes its report again, and no controller that takes the Lease again."""
    await _delete(client, DAEMONSETS, names.COMPONENT_AGENT, namespace)
    await _delete(client, DEPLOYMENTS, names.COMPONENT_CONTROLLER, namespace)
    selector = f"{names.COMPONENT_LABEL} in ({names.COMPONENT_AGENT},{names.COMPONENT_CONTROLLER})"
    left: list[str] = []
    try:
        async with asyncio.timeout(PODS_WITHIN):
            while True:
                pods, _ = await client.list(PODS, namespace, label_selector=selector)
                left = sorted(f"{pod.metadata.name} on {pod.spec.node_name or 'no node'}" for pod in pods)
                if not left:
                    break
                await asyncio.sleep(LOOK)
    except TimeoutError:
        tell(f"not waited for any longer, because kubelet does not end them: {_some(left)}")
    await _delete(client, LEASES, names.LEASE_NAME, namespace)
    await _delete(client, CONFIGMAPS, names.STOP_NAME, namespace)
    tell("agents and controller have ended")


async def _unmarked(client: Client, tell: Tell) -> None:
    """Conditions of dead agents never expire, so they are taken off. State of a node that was given up stays."""
    nodes, _ = await client.list(NODES)
    several = asyncio.Semaphore(AT_ONCE)

    async def unmark(node: Node) -> None:
        async with several:
            await _unmark(client, node)

    marked = [node for node in nodes if _marks(node) or _conditions(node)]
    for problem in await asyncio.gather(*map(unmark, marked), return_exceptions=True):
        if problem is not None:
            raise problem
    tell(f"conditions and report taken off {len(marked)} of {len(nodes)} nodes")
    given_up = [node.metadata.name for node in nodes if _has_state(node)]
    if given_up:
        tell(f"given up and never cleaned, so their state stays on the Node: {_some(given_up)}")


async def _unmark(client: Client, node: Node) -> None:
    patch: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(_marks(node))}}
    if told := _conditions(node):
        patch["status"] = {"conditions": [{"type": one, "$patch": "delete"} for one in told]}
    with suppress(NotFound):  # it has left the cluster meanwhile
        await client.patch(NODES, node.metadata.name, patch, subresource="status", content_type=STRATEGIC_MERGE_PATCH)


def _marks(node: Node) -> list[str]:
    return [key for key in node.metadata.annotations if key == names.REPORT_ANNOTATION or key.startswith(_ASKED)]


def _conditions(node: Node) -> list[str]:
    """Types of those that agents write."""
    return [one for one in names.AGENT_CONDITIONS if condition(node.status.conditions, one) is not None]


def _has_state(node: Node) -> bool:
    return any(key.startswith(names.STATE_ANNOTATION_PREFIX) for key in node.metadata.annotations)


async def _delete(client: Client, resource: AnyResource, name: str, namespace: str = "") -> None:
    with suppress(NotFound):  # a run before this one did it
        await client.delete(resource, name, namespace)


def _some(found: list[str]) -> str:
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "")
