"""A cluster for commands: the embedded API server on a thread of its own, and a kubeconfig that names it."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner, Result

from reconciler.api.clock import SystemClock
from reconciler.cli.main import app
from reconciler.kube.client import Client
from reconciler.sim import http
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

T = TypeVar("T")
DEADLINE = 30.0
"""Seconds for one call."""


@dataclass(frozen=True)
class Served:
    """The server, as a command meets it and as a test looks into it."""

    server: ApiServer
    kubeconfig: Path
    _loop: asyncio.AbstractEventLoop

    def ask(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """What `call(client)` comes to, with every right."""

        async def asked() -> T:
            return await call(Client(MemoryTransport(self.server, user="admin")))

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(DEADLINE)

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        """`reconciler ARGUMENTS` against this cluster; `answer` is what a person types."""
        return CliRunner().invoke(app, [*arguments, "--kubeconfig", str(self.kubeconfig)], input=answer)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """`served.run("pause", "kata")`; whatever is to be there is made by `served.ask`."""
    loop = asyncio.new_event_loop()
    server = ApiServer(clock=SystemClock(), rng=random.Random(1))
    stop, up, where = asyncio.Event(), threading.Event(), ""

    async def serve() -> None:
        nonlocal where
        async with http.serve(server) as where:
            up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(DEADLINE)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(_config(where)))
    yield Served(server, path, loop)
    loop.call_soon_threadsafe(stop.set)
    thread.join(DEADLINE)
    loop.close()


def _config(url: str) -> dict[str, object]:
    """JSON is YAML. Context `nowhere` names a cluster that does not answer."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "admin"}},
            {"name": "nowhere", "context": {"cluster": "n", "user": "admin"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": url}},
            {"name": "n", "cluster": {"server": "http://127.0.0.1:1"}},
        ],
        "users": [{"name": "admin", "user": {"token": "admin"}}],
    }
