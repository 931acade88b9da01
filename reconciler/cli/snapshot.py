"""The controller's World for those who only look: from lists, or kept current by watches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.api.meta import ConfigMap, Node
from reconciler.api.overview import Overview
from reconciler.cli.connection import Refused
from reconciler.controller.outlooks import survey
from reconciler.controller.overview import overview
from reconciler.controller.stopping import seen
from reconciler.controller.world import NODE_INDEX, World
from reconciler.kube.client import Client
from reconciler.kube.errors import ApiError, NotFound
from reconciler.kube.informer import Informer
from reconciler.kube.resources import CONFIGMAPS, CONTROLLERREVISIONS, LEASES, NODERUNTIMES, NODES, PODS, Resource
from reconciler.kube.store import HasMeta, Store

T = TypeVar("T", bound=HasMeta)
OUR_PODS = f"{names.COMPONENT_LABEL} in ({names.COMPONENT_AGENT},{names.COMPONENT_PHASE})"
SYNC = 60.0
"""Seconds for the first list of every resource."""


async def listed(client: Client, namespace: str) -> World:
    """The World of now. Raises Refused without our CRD, ApiError, TransportError."""
    world = _world(namespace)
    await asyncio.gather(
        _fill(client, world.runtimes, NODERUNTIMES),
        _fill(client, world.nodes, NODES),
        _fill(client, world.pods, PODS, namespace, OUR_PODS),
        _fill(client, world.revisions, CONTROLLERREVISIONS, namespace, names.RUNTIME_LABEL),
        _look_for_stop(client, world),
    )
    return world


@asynccontextmanager
async def watched(client: Client, namespace: str) -> AsyncIterator[tuple[World, asyncio.Event]]:
    """A World that stays current, and an event that is set when something in it has changed.

    Raises Refused without our CRD or without the rights, ApiError, TransportError.
    """
    await _fill(client, Store(), NODERUNTIMES)  # what is wrong is told now; a watch would go on trying
    changed = asyncio.Event()
    world = _world(namespace)
    options: dict[str, Any] = {"clock": SystemClock(), "rng": random.Random()}
    informers: list[Informer[Any]] = [
        Informer(client, NODERUNTIMES, **options),
        Informer(client, NODES, **options),
        Informer(client, PODS, namespace=namespace, label_selector=OUR_PODS, indexers=INDEXERS, **options),
        Informer(client, CONTROLLERREVISIONS, namespace=namespace, label_selector=names.RUNTIME_LABEL, **options),
    ]
    world.runtimes, world.nodes, world.pods, world.revisions = (informer.store for informer in informers)
    stops = Informer(
        client, CONFIGMAPS, namespace=namespace, field_selector=f"metadata.name={names.STOP_NAME}", **options
    )
    stops.add_handler(lambda kind, old, new, initial: _note(world, new))
    for informer in (*informers, stops):
        informer.add_handler(lambda kind, old, new, initial: changed.set())
    # who may not see the stop sees all else: nothing waits for its first list
    running = [asyncio.ensure_future(informer.run()) for informer in (*informers, stops)]
    try:
        await _synced(informers)
        yield world, changed
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def read(world: World, now: datetime) -> Overview:
    """Look at every node as the controller would."""
    for _ in survey(world, now):
        pass
    return overview(world, now)


async def leaderless(client: Client, namespace: str, now: datetime) -> str:
    """Why no controller leads, as far as its Lease tells; empty while one does or nobody may know."""
    try:
        lease = await client.get(LEASES, names.LEASE_NAME, namespace)
    except NotFound:
        return f"no controller has led yet: Lease {namespace}/{names.LEASE_NAME} is not there"
    except ApiError:
        return ""
    spec = lease.spec
    if not spec.holder_identity or not spec.renew_time:
        return f"no controller leads: nobody holds Lease {namespace}/{names.LEASE_NAME}"
    over = datetime.fromisoformat(spec.renew_time) + timedelta(seconds=spec.lease_duration_seconds or 0)
    if now <= over:
        return ""
    return f"no controller leads: {spec.holder_identity} renewed its Lease last at {spec.renew_time}"


def node_of(world: World, name: str) -> Node:
    """Raises Refused when it is not there."""
    node = world.nodes.get(name)
    if node is None:
        raise Refused(f"node {name} is not there; see `kubectl get nodes`")
    return node


INDEXERS = {NODE_INDEX: lambda pod: [pod.spec.node_name]}


def _world(namespace: str) -> World:
    return World(
        namespace=namespace, nodes=Store(), pods=Store(INDEXERS), runtimes=Store(), revisions=Store(), classes=Store()
    )


async def _look_for_stop(client: Client, world: World) -> None:
    """Raises TransportError. Who may not see it sees all else."""
    with suppress(ApiError):
        stop = await client.get(CONFIGMAPS, names.STOP_NAME, world.namespace)
        _note(world, stop)


def _note(world: World, stop: ConfigMap | None) -> None:
    world.stopping = seen(stop, SystemClock().now())


async def _fill(
    client: Client, store: Store[T], resource: Resource[T], namespace: str = "", label_selector: str = ""
) -> None:
    try:
        found, _ = await client.list(resource, namespace, label_selector=label_selector)
    except NotFound as error:
        raise Refused(NO_CRD) from error
    for item in found:
        store.put(item)


NO_CRD = "this cluster knows no NodeRuntime; apply `reconciler manifests`, or choose another --context"


async def _synced(informers: list[Informer[Any]]) -> None:
    try:
        async with asyncio.timeout(SYNC):
            for informer in informers:
                await informer.synced.wait()
    except TimeoutError as error:
        words = "; ".join(informer.refused for informer in informers if informer.refused)
        raise Refused(words or f"the cluster did not list everything within {SYNC:.0f} s") from error
