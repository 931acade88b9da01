"""`--watch`: a line for each change in a pipe, a document for each change for programs, a screen on a terminal."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from reconciler.api.clock import SystemClock
from reconciler.api.node import Stage
from reconciler.cli import status
from reconciler.cli.output import Format
from reconciler.cli.watching import watch
from reconciler.kube.client import Client
from reconciler.kube.resources import NODES
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer
from tests.unit.cli.lab import NS, Cluster

DEADLINE = 20.0


@asynccontextmanager
async def watching(form: Format) -> AsyncIterator[tuple[Client, Cluster]]:
    """`status kata --watch` on a cluster with one ready node."""
    server = ApiServer(clock=SystemClock(), rng=random.Random(1))
    client = Client(MemoryTransport(server, user="admin"))
    cluster = Cluster(client)
    await cluster.runtime()
    await cluster.node("node-1", Stage.READY, installed=cluster.revision)
    task = asyncio.ensure_future(
        watch(
            client,
            NS,
            form,
            shown=lambda world, whole: status.shown(whole, "kata"),
            told=lambda world, whole: status.only(whole, "kata"),
            rows=lambda whole: [*whole.nodes],
        )
    )
    try:
        yield client, cluster
    finally:
        task.cancel()
        await asyncio.wait({task})


class Output:
    """What was written to stdout so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    async def until(self, holds: Callable[[str], bool]) -> str:
        async with asyncio.timeout(DEADLINE):
            while not holds(self.text):
                self.text += self._capsys.readouterr().out
                await asyncio.sleep(0.02)
        return self.text


async def test_in_a_pipe_it_is_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(capsys)
    async with watching(Format.TEXT) as (client, cluster):
        first = await output.until(lambda text: text.count("\n") == 1)
        assert first.endswith(" UTC  kata  node-1  ready  ok  nothing\n")
        await cluster.node("node-2")
        second = await output.until(lambda text: "node-2" in text and text.endswith("\n"))
        waits = "its turn: a slot of rollout.maxUnavailable"
        assert second.splitlines()[-1].endswith(f" UTC  kata  node-2  absent  waiting  {waits}")
        assert second.count("node-1") == 1
        await client.delete(NODES, "node-2")
        third = await output.until(lambda text: text.count("node-2") > second.count("node-2"))
        assert third.splitlines()[-1].endswith(" UTC  kata  node-2  absent")


async def test_for_programs_it_is_a_document_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(capsys)
    async with watching(Format.JSON) as (client, _):
        first = json.loads(await output.until(lambda text: text.endswith("}\n")))
        assert [row["node"] for row in first["nodes"]] == ["node-1"]
        output.text = ""
        await client.patch(NODES, "node-1", {"status": {"conditions": []}}, subresource="status")
        second = json.loads(await output.until(lambda text: text.endswith("\n}\n")))
        assert (second["nodes"][0]["verdict"], second["nodes"][0]["awaits"]) == ("waiting", "node-ready")
        assert second["nodes"][0]["barrier"] == "unknown"


async def test_on_a_terminal_it_is_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    output = Output(capsys)
    async with watching(Format.TEXT):
        shown = await output.until(lambda text: "node-1" in text)
    assert shown.startswith("\x1b[?1049h")  # the screen of its own, as `less` has one
