"""One run: informers behind the proxy, a writer beside it, fire for a while, and then everything has to be right."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import Configuration

from reconciler.kube.client import Client
from reconciler.kube.cluster import ClusterTransport
from reconciler.kube.errors import ApiError, TransportError
from reconciler.kube.informer import Informer
from reconciler.kube.light import LightTransport
from reconciler.kube.resources import CONFIGMAPS, NODES, PODS, RUNTIMECLASSES, AnyResource
from reconciler.kube.transport import Transport
from tests.fire.clock import LoopClock
from tests.fire.proxy import Proxy
from tests.fire.story import Story, state

TOKEN = "admin-token"
NAMES = ("a", "b", "c", "d", "e")
BURNS_FOR = 40.0
CHANGES = 40
SETTLED_WITHIN = 200.0
"""Seconds of the loop: a silence that is noticed (70), the longest backoff (30), a refused or expired watch that backs
off once more (30), a list (30), and 40 for the way."""
WORDS = "größer, 更大, больше, 🔥"
"""Characters of two, three and four bytes, in each object."""


@dataclass
class World:
    """An API server. `compact` makes it forget its history."""

    url: str
    compact: Callable[[int], Awaitable[None]]
    tls: tuple[Path, Path] | None = None
    """Key and certificate of the proxy; without it all runs are on plain connections."""
    slower: float = 1.0


class Failed(AssertionError):
    """With the timeline of the run."""


async def run(world: World, seed: int) -> Proxy:
    rng = random.Random(seed)
    proxy = Proxy(world.url, random.Random(f"fire {seed}"), slower=world.slower)
    secure = world.tls if rng.random() < 0.5 else None
    async with proxy.serve(tls=_context(secure)) as url, _client(_light(world.url, None)) as writer:
        through = (_light if rng.random() < 0.5 else _cluster)(url, secure)
        async with _client(through) as watcher:
            proxy.note(f"seed {seed}: {type(through).__name__}, {url}")
            try:
                await _Run(world, seed, rng, proxy, writer, watcher).go()
            except (AssertionError, TimeoutError) as error:
                raise Failed(f"seed {seed}: {error!r}\n" + "\n".join(proxy.story)) from error
    return proxy


class _Run:
    def __init__(
        self, world: World, seed: int, rng: random.Random, proxy: Proxy, writer: Client, watcher: Client
    ) -> None:
        self._world, self._rng, self._proxy, self._writer = world, rng, proxy, writer
        self._namespace, self._mark = f"fire-{seed}", f"run-{seed}"
        self._changed = asyncio.Event()
        chosen = f"run={self._mark},colour=red"
        selected: list[tuple[AnyResource, dict[str, str]]] = [
            (CONFIGMAPS, {"namespace": self._namespace, "label_selector": chosen}),
            (PODS, {"namespace": self._namespace, "field_selector": "spec.nodeName=here"}),
            (NODES, {"label_selector": chosen}),
            (RUNTIMECLASSES, {"label_selector": chosen}),
        ]
        self._informers = [
            (Informer(watcher, resource, clock=LoopClock(), rng=rng, **how), resource, how)
            for resource, how in selected
        ]
        self._stories = [self._listen(informer) for informer, _, _ in self._informers]

    def _listen(self, informer: Informer[Any]) -> Story:
        story = Story()
        informer.add_handler(story.hear)
        informer.add_handler(lambda *_: self._changed.set())
        return story

    async def go(self) -> None:
        running = [asyncio.ensure_future(informer.run()) for informer, _, _ in self._informers]
        try:
            await self._burn()
            self._proxy.burns = False
            self._proxy.note("the fire is out")
            await self._settle(running)
        finally:
            for task in running:
                task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
        for error in ended:
            assert isinstance(error, asyncio.CancelledError), f"an informer ended: {error!r}"

    # --- the fire ---

    async def _burn(self) -> None:
        pause = BURNS_FOR / CHANGES
        for _ in range(CHANGES):
            informer, resource, _ = self._rng.choice(self._informers)
            with suppress(ApiError, TransportError):  # there already, or not there
                await self._change(informer, resource)
                self._proxy.writes[resource.plural] += 1
            if self._rng.random() < 0.1:
                with suppress(ApiError, TransportError):
                    await self._compact()
            await asyncio.sleep(self._rng.uniform(0.0, 2 * pause))

    async def _change(self, informer: Informer[Any], resource: AnyResource) -> None:
        name, namespace = self._rng.choice(NAMES), self._namespace if resource.namespaced else ""
        name = name if resource.namespaced else f"{self._mark}-{name}"
        what = self._rng.choice(("create", "create", "change", "change", "delete", "anew"))
        if what in ("delete", "anew"):
            await self._writer.delete(resource, name, namespace, grace_seconds=0)
        colour = self._rng.choice(("red", "red", "blue"))
        labels = {"run": self._mark, "colour": colour, "n": str(self._rng.randrange(10**6))}
        meta = {"name": name, "labels": labels, "annotations": {"words": WORDS * self._rng.randrange(1, 40)}}
        if what == "change":
            answer = await self._writer.patch(resource, name, {"metadata": meta}, namespace)
        elif what == "delete":
            return
        else:
            answer = await self._writer.create(resource, {"metadata": meta, **self._body(resource)}, namespace)
        chosen = answer.spec.node_name == "here" if resource is PODS else colour == "red"
        if chosen and self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.choice((0.0, 0.5)))
            informer.store.apply_write(answer)

    def _body(self, resource: AnyResource) -> dict[str, Any]:
        if resource is PODS:
            node = self._rng.choice(("here", "here", "there"))
            return {"spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}}
        return {"handler": "h"} if resource is RUNTIMECLASSES else {}

    async def _compact(self) -> None:
        _, version = await self._writer.raw_list(NODES)
        self._proxy.note(f"compacted at {version}")
        await self._world.compact(int(version))

    # --- after the fire ---

    async def _settle(self, running: list[asyncio.Task[None]]) -> None:
        for (informer, resource, how), story in zip(self._informers, self._stories, strict=True):
            truth = await self._truth(resource, **how)
            try:
                async with asyncio.timeout(SETTLED_WITHIN):
                    while not (informer.synced.is_set() and state(informer.store.list()) == truth == story.known):
                        self._changed.clear()
                        await self._wait(running)
            except TimeoutError as error:
                held = state(informer.store.list())
                words = f"{resource.plural} after {SETTLED_WITHIN} s: {held=}, told={story.known}, {truth=}"
                raise AssertionError(words) from error

    async def _truth(self, resource: AnyResource, namespace: str = "", **chosen: str) -> Any:
        """What a fresh list says, however long a busy machine takes for it."""
        async with asyncio.timeout(SETTLED_WITHIN):
            while True:
                with suppress(ApiError, TransportError):
                    return state((await self._writer.list(resource, namespace, **chosen))[0])

    async def _wait(self, running: list[asyncio.Task[None]]) -> None:
        """Until a handler is told of something, or an informer has ended, which it must not."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            done, _ = await asyncio.wait({changed, *running}, return_when=asyncio.FIRST_COMPLETED, timeout=5.0)
            for task in done - {changed}:
                task.result()
        finally:
            changed.cancel()


@asynccontextmanager
async def _client(transport: Transport) -> AsyncIterator[Client]:
    client = Client(transport)
    try:
        yield client
    finally:
        await client.close()


def _light(url: str, tls: tuple[Path, Path] | None) -> Transport:
    return _Unverified(url, token=TOKEN) if tls is None else LightTransport(url, token=TOKEN, ca_file=tls[1])


class _Unverified(LightTransport):
    """The server's own certificate is new in each run."""

    def _trust(self) -> ssl.SSLContext:
        return ssl._create_unverified_context()


def _cluster(url: str, tls: tuple[Path, Path] | None) -> Transport:
    configuration: Any = Configuration(host=url, api_key={"BearerToken": f"Bearer {TOKEN}"})
    configuration.ssl_ca_cert = None if tls is None else str(tls[1])
    return ClusterTransport(_Token(), configuration, LoopClock())


class _Token:
    """Never renewed."""

    source = "a token"
    expiry = None

    async def load(self, configuration: Any) -> None:
        """It is there."""


def _context(tls: tuple[Path, Path] | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls[1], tls[0])
    return context
