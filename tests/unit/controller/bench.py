"""A controller's parts before an embedded API server; and the source of the decisions that they carry out."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
from collections.abc import Awaitable, Callable

from metrics.controller import ControllerMetrics
from reconciler import phases
from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.controller.runtime import RuntimeReconciler
from reconciler.controller.stopping import StopSwitch
from reconciler.controller.telemetry import Telemetry
from reconciler.controller.world import NODE_INDEX, World
from reconciler.kube.client import Client
from reconciler.kube.events import Recorder
from reconciler.kube.store import Store
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

Confirm = Callable[[], Awaitable[None]]


def decision_source() -> str:
    """The text of all modules of `phases`."""
    found = (
        importlib.import_module(f"{phases.__name__}.{each.name}") for each in pkgutil.iter_modules(phases.__path__)
    )
    return "\n".join(inspect.getsource(module) for module in found)


def empty_world() -> World:
    """Its stores are filled by hand."""
    return World(
        namespace=names.NAMESPACE,
        nodes=Store(),
        pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
        runtimes=Store(),
        revisions=Store(),
        classes=Store(),
    )


def controller_client() -> Client:
    """Of a server with nothing in it."""
    server = ApiServer(clock=SystemClock(), rng=random.Random(1))
    return Client(MemoryTransport(server, user="controller"), rng=random.Random(2))


def runtime_reconciler(world: World, client: Client, confirm: Confirm | None = None) -> RuntimeReconciler:
    """`confirm`: instead of asking whether everything is stopped."""
    clock = SystemClock()
    return RuntimeReconciler(
        world,
        client,
        confirm=confirm or StopSwitch(client, Store(), world, clock).confirm,
        clock=clock,
        rng=random.Random(3),
        telemetry=Telemetry(Recorder(client, "test", clock), ControllerMetrics(), world.runtime),
        wake=lambda node: None,
    )
