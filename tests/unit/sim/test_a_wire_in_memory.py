"""The wire without sockets carries what a socket would, and breaks at any byte."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from reconciler.kube.client import Client
from reconciler.kube.errors import NotFound
from reconciler.kube.informer import Informer
from reconciler.kube.resources import CONFIGMAPS
from reconciler.kube.transport import TransportError
from reconciler.sim import clock
from reconciler.sim.cluster import Options, running
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer
from reconciler.sim.wire import Wire
from tests.unit.sim.bench import Bench

PATH = "/api/v1/namespaces/ns/configmaps"


def play(main: Callable[[ApiServer, Wire], Coroutine[Any, Any, None]]) -> None:
    async def body() -> None:
        server = ApiServer(clock=clock.VirtualClock(), rng=random.Random(1))
        wire = Wire(server, user="agent:x")
        await main(server, wire)
        await wire.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    clock.run(body())


def test_an_answer_over_the_wire_is_the_one_of_memory() -> None:
    async def main(server: ApiServer, wire: Wire) -> None:
        body = b'{"metadata": {"name": "a"}, "data": {"x": "%s"}}' % (b"y" * 300_000)
        made = await wire.request("POST", PATH, body=body)
        assert made.status == 201
        memory = MemoryTransport(server, user="agent:y")
        for path in (f"{PATH}/a", PATH, f"{PATH}/none"):
            over_wire, straight = await wire.request("GET", path), await memory.request("GET", path)
            assert (over_wire.status, over_wire.body) == (straight.status, straight.body)
        assert {audit.user for audit in server.audit} == {"agent:x", "agent:y"}

    play(main)


def test_a_connection_cut_at_any_byte_is_an_error_or_the_whole_answer() -> None:
    async def main(server: ApiServer, wire: Wire) -> None:
        outcomes = []
        for after in range(1, 700):
            name = f"c{after:03}"
            await wire.request("GET", f"{PATH}/none")  # one connection is open, and is used again
            assert wire.cut(after) == 1
            body = b'{"metadata": {"name": "%s"}}' % name.encode()
            try:
                answer = await wire.request("POST", PATH, body=body)
            except TransportError:
                answered = False
            else:
                answered = answer.status == 201 and f'"name":"{name}"'.encode() in answer.body
                assert answered
            there = (await MemoryTransport(server, user="admin").request("GET", f"{PATH}/{name}")).status == 200
            outcomes.append((answered, there))
            assert asyncio.get_running_loop().time() == 0.0
        # a request of so many bytes is done when all have come, and answered when those of the answer have
        order = [(False, False), (False, True), (True, True)]
        assert outcomes == sorted(outcomes, key=order.index)
        asked, answer_came = outcomes.index((False, True)) + 1, outcomes.index((True, True)) + 1
        assert 200 < asked < answer_came - 200

    play(main)


def test_an_informer_is_right_again_after_each_cut() -> None:
    async def main(server: ApiServer, wire: Wire) -> None:
        rng, admin = random.Random(1), Client(MemoryTransport(server, user="admin"))
        informer = Informer(Client(wire, rng=rng), CONFIGMAPS, clock=clock.VirtualClock(), rng=rng)
        running = asyncio.ensure_future(informer.run())
        await informer.synced.wait()
        for number in range(100):
            wire.cut(rng.randint(1, 600))
            await admin.create(CONFIGMAPS, {"metadata": {"name": f"m{number}"}}, "ns")
            if rng.random() < 0.3:
                with suppress(NotFound):
                    await admin.delete(CONFIGMAPS, f"m{rng.randrange(number + 1)}", "ns")
            await asyncio.sleep(rng.random())
        await asyncio.sleep(60)
        truth = {(m.metadata.name, m.metadata.resource_version) for m in (await admin.list(CONFIGMAPS))[0]}
        assert {(m.metadata.name, m.metadata.resource_version) for m in informer.store.list()} == truth
        assert len(truth) > 50
        running.cancel()
        await asyncio.wait({running})

    play(main)


def test_a_cluster_runs_over_wires_and_a_fault_cuts_them(tmp_path: Path) -> None:
    async def main() -> list[str]:
        options = Options(root=tmp_path, clock=clock.VirtualClock(), agent=None, nodes=1, controllers=1, over="wire")
        async with running(options) as cluster:
            bench = Bench(cluster)
            await bench.until(lambda: cluster.leader is not None)
            for seed in range(10):
                await bench.cause("wire-cut", seed)
                await asyncio.sleep(5)
            await bench.until(lambda: cluster.leader is not None)
            return bench.said

    said = clock.run(main())
    assert len(said) > 3
    assert all(line.startswith("wire-cut: ") for line in said)
