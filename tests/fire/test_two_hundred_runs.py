"""Two hundred runs against a real API server, twenty at once."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.light import LightTransport
from reconciler.kube.resources import NODES
from tests.chart.apiserver import ApiServer
from tests.cluster.command import run as command
from tests.fire import clock, faults, leaks, trial
from tests.fire.proxy import Proxy

SPEED = 12.0
RUNS, AT_ONCE = 200, 20
WARM = 3
"""Batches until every cache of the interpreter and of the libraries is full; memory is measured from then on."""
GROWTH = 12.0
"""MB that the other 120 runs may add: 0.1 a run. Objects of ours that stay are counted, whatever their size."""
CLOSED_WITHIN = 60.0
"""Seconds of the loop: a TLS connection whose other end is silent is closed after 30."""
UNCACHED = "--watch-cache-sizes=configmaps#0,pods#0"
"""Watches of these are read from etcd, so that a compaction ends them; the others' come from memory."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    plugins = "--disable-admission-plugins=ServiceAccount"
    with ApiServer(tmp_path_factory.mktemp("apiserver"), UNCACHED, plugins) as server:
        yield server


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Key and certificate of the proxies."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key", folder / "cert"
    request = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=proxy"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    command([*request.split(), *names])
    return key, cert


@pytest.fixture(autouse=True)
def few_words() -> Iterator[None]:
    """An informer under fire has much to complain of."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_informers_come_out_of_the_fire_equal_to_the_server_and_leave_nothing_behind(
    api: ApiServer, tls: tuple[Path, Path]
) -> None:
    names = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"fire-{n}"}} for n in range(RUNS)]
    api.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": names}))
    struck: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    expired = 0
    memory: list[float] = []

    async def compact(version: int) -> None:
        etcd = LightTransport(api.etcd)
        body = json.dumps({"revision": str(version)}).encode()
        await etcd.request("POST", "/v3/kv/compaction", body=body, timeout=100.0)  # or it was compacted already
        await etcd.close()

    async def main() -> None:
        nonlocal expired
        await leaks.one_thread()
        world = trial.World(api.url, compact, tls, slower=SPEED)
        before = leaks.census()
        for first in range(0, RUNS, AT_ONCE):
            seeds = range(first, first + AT_ONCE)
            for proxy in await asyncio.gather(*(trial.run(world, seed) for seed in seeds)):
                struck.update(proxy.struck)
                writes.update(proxy.writes)
                expired += proxy.expired
            assert await leaks.settled(before, CLOSED_WITHIN) == before, f"after seeds {seeds}"
            memory.append(leaks.resident())

    clock.run(main(), speed=SPEED)
    print(f"\nfaults: {sum(struck.values())} {dict(struck.most_common())}")
    print(f"writes: {dict(writes)}; watches that the server itself ended with a 410: {expired}")
    print(f"MB after each batch: {[round(each, 1) for each in memory]}")
    assert set(struck) == set(faults.NAMES)
    assert set(writes) == {"configmaps", "pods", "nodes", "runtimeclasses"}
    assert expired >= RUNS / 10
    assert memory[-1] - memory[WARM] <= GROWTH


async def _outage(url: str) -> Proxy:
    """Ten minutes in which every request of four informers ends in a reset."""
    proxy = Proxy(url, random.Random(1), dead=True)
    async with proxy.serve() as through:
        client = Client(LightTransport(through))
        informers = [Informer(client, NODES, clock=clock.LoopClock(), rng=random.Random(n)) for n in range(4)]
        running = [asyncio.ensure_future(informer.run()) for informer in informers]
        await asyncio.sleep(600)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await client.close()
    return proxy


def test_an_outage_costs_the_server_no_storm() -> None:
    """A list is four requests; a backoff is 15 s on the mean once it has grown: 60 lists of one informer at most."""
    proxy = clock.run(_outage("http://127.0.0.1:9"), speed=80.0)
    assert 4 * 60 <= proxy.requests <= 4 * 60 * 4
    assert proxy.most_at_once <= 4
