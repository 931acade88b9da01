"""Which API server the tests of this folder speak to: the embedded one, by both of its roads, or a real one."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from reconciler.api.clock import SystemClock
from reconciler.kube.light import LightTransport
from reconciler.kube.transport import Transport
from reconciler.sim import http
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer
from tests.conformance import etcd
from tests.conformance.api import NAMESPACES, Api, named

REAL = "CONFORMANCE_API"
"""Address of a real API server; with it nothing of the embedded one is tested. Set by `python -m tests.conformance`."""


@pytest.fixture(params=("real",) if REAL in os.environ else ("memory", "http"))
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    async with AsyncExitStack() as stack:
        opened = await _embedded(request.param, stack) if request.param != "real" else _real()
        await opened.make(NAMESPACES, named(opened.name))
        try:
            if request.param == "real":
                await opened.settled()
            yield opened
        finally:
            await opened.clean_up()


def _real() -> Api:
    token = os.environ["CONFORMANCE_TOKEN"]
    transport = LightTransport(os.environ[REAL], ca_file=Path(os.environ["CONFORMANCE_CA"]), token=token)
    return Api(transport, lambda: etcd.compact(os.environ["CONFORMANCE_ETCD"]))


async def _embedded(road: str, stack: AsyncExitStack) -> Api:
    server = ApiServer(clock=SystemClock(), rng=random.Random(1), namespaces=frozenset({"default"}))

    async def forget() -> None:
        server.store.compact()

    if road == "memory":
        transport: Transport = MemoryTransport(server, user="admin")
    else:
        transport = LightTransport(await stack.enter_async_context(http.serve(server)), token="admin")
    return Api(transport, forget)
