"""The informer against every order of writes, deliveries, breaks, compactions and late answers that a machine finds.

Two informers watch a real store through a gate that holds each line back until a rule lets it through. After each rule
what the handlers were told is a story that can be true; when all is delivered, store and story are the server's state.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from reconciler.kube import client as client_module
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, NotFound
from reconciler.kube.informer import Informer
from reconciler.kube.resources import CONFIGMAPS, NODES, AnyResource
from reconciler.kube.store import Store, version_of
from reconciler.kube.transport import ByteStream, TransportError
from reconciler.sim.clock import VirtualClock, VirtualLoop
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer
from tests.fire.story import Story, state

NAMES = ("a", "b")
RESOURCES: dict[str, AnyResource] = {"nodes": NODES, "configmaps": CONFIGMAPS}
COLOURS = ("red", "blue")
WRITES = st.sampled_from([*COLOURS, "delete", "make anew"])
SECONDS = st.sampled_from([0.0, 1.0, 35.0, 80.0])
"""Time for nothing, for a short backoff, for bookmarks and the longest one, for a silence that is noticed."""
KINDS = st.sampled_from(sorted(RESOURCES))
SELECTOR = "colour=red"
SETTLED_WITHIN = 150.0
"""Seconds: a silence that is noticed (70), a backoff at its longest (30), a list (30), and some turns of the loop."""
EXAMPLES = settings(max_examples=50, stateful_step_count=40, suppress_health_check=list(HealthCheck))


class Gate(MemoryTransport):
    """Watches bring a line only when it was let through; those that are open can be cut, also within a line."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, user="watcher")
        self.open = False
        self.allowed = 0
        self._cuts: list[str] = []
        self._changed = asyncio.Event()

    def allow(self, lines: int) -> None:
        self.allowed += lines
        self._changed.set()

    def cut(self, how: str) -> None:
        self._cuts.append(how)
        self._changed.set()

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float
    ) -> AsyncIterator[ByteStream]:
        async with super().stream(path, query=query, timeout=timeout) as inner:
            yield _Held(self, inner)

    async def pass_one(self, born: int) -> str:
        """How the stream that was there after `born` cuts was cut; empty when a line may pass."""
        while len(self._cuts) == born and not self.open and self.allowed == 0:
            self._changed.clear()
            await self._changed.wait()
        if len(self._cuts) > born:
            return self._cuts[born]
        self.allowed = max(self.allowed - 1, 0)
        return ""

    @property
    def cuts(self) -> int:
        return len(self._cuts)


class _Held:
    def __init__(self, gate: Gate, inner: ByteStream) -> None:
        self.status, self.headers = inner.status, inner.headers
        self._gate, self._inner, self._born = gate, inner, gate.cuts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            for line in chunk.splitlines(keepends=True):
                how = await self._gate.pass_one(self._born)
                if not how:
                    yield line
                    continue
                if how in ("within a line", "politely"):
                    yield line[: len(line) // 2]
                if how == "politely":
                    return
                raise TransportError("connection reset")


def colours(obj: Any) -> list[str]:
    return [obj.metadata.labels.get("colour", "")]


class InformerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        rng, clock = random.Random(1), VirtualClock()
        self.server = ApiServer(clock=clock, rng=rng)
        self.writer = Client(MemoryTransport(self.server, user="writer"), rng=rng)
        self.gate = Gate(self.server)
        watcher = Client(self.gate, rng=rng)
        indexers = {"colour": colours}
        self.informers: dict[str, Informer[Any]] = {
            "nodes": Informer(watcher, NODES, clock=clock, rng=rng, indexers=indexers),
            "configmaps": Informer(
                watcher, CONFIGMAPS, clock=clock, rng=rng, namespace="ns", label_selector=SELECTOR, indexers=indexers
            ),
        }
        self.stories = {plural: Story() for plural in self.informers}
        for plural, informer in self.informers.items():
            informer.add_handler(self.stories[plural].hear)
        self.running = [asyncio.ensure_future(informer.run()) for informer in self.informers.values()]
        self.answers: list[tuple[str, Any]] = []
        self.taken: list[tuple[str, Any]] = []
        """Answers that a store has taken and the server not shown yet."""
        self.newest: dict[tuple[str, tuple[str, str]], int] = {}

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """Carry `work` out, and let what it woke come to rest."""

        async def main() -> None:
            await work
            await asyncio.sleep(0.01)
            for task in self.running:
                if task.done():
                    task.result()

        self.runner.run(main())

    # --- writes ---

    @rule(name=st.sampled_from(NAMES), kind=KINDS, how=WRITES, late=st.booleans())
    def write(self, name: str, kind: str, how: str, late: bool) -> None:
        """The answer is put into the store at once, or late."""
        self.do(self._write(RESOURCES[kind], name, how, late))

    async def _write(self, resource: AnyResource, name: str, how: str, late: bool) -> None:
        namespace = "ns" if resource.namespaced else ""
        labels = {"colour": how if how in COLOURS else "red", "n": str(self.server.store.version)}
        if how in ("delete", "make anew"):
            with suppress(NotFound):
                await self.writer.delete(resource, name, namespace)
        if how == "delete":
            return
        body = {"metadata": {"name": name, "labels": labels}}
        try:
            answer = await self.writer.create(resource, body, namespace)
        except AlreadyExists:
            answer = await self.writer.patch(resource, name, body, namespace)
        self._answered(resource, answer, late)

    def _answered(self, resource: AnyResource, obj: Any, late: bool) -> None:
        """An answer that the selector does not choose is not for the store: its caller knows what it watches."""
        if resource is CONFIGMAPS and obj.metadata.labels["colour"] != "red":
            return
        if late:
            self.answers.append((resource.plural, obj))
        else:
            self._put(resource.plural, obj)

    @rule(back=st.integers(0, 1))
    def a_late_answer_comes(self, back: int) -> None:
        if len(self.answers) > back:
            self._put(*self.answers.pop(-1 - back))

    def _put(self, plural: str, obj: Any) -> None:
        if self.informers[plural].store.apply_write(obj):
            self.taken.append((plural, obj))

    # --- what becomes of the watches ---

    @rule(lines=st.integers(1, 4))
    def deliver(self, lines: int) -> None:
        self.gate.allow(lines)
        self.do(asyncio.sleep(0))
        self.gate.allowed = 0

    @rule(how=st.sampled_from(["before", "within a line", "politely", "410", "410 in stream"]), seconds=SECONDS)
    def break_off(self, how: str, seconds: float) -> None:
        """With a 410, what was not delivered yet will never be."""
        if how.startswith("410"):
            self.server.knobs.expired_in_stream = how == "410 in stream"
            self.server.store.compact()
        self.gate.cut(how)
        self.server.break_watches()
        self.do(asyncio.sleep(seconds))

    # --- what holds ---

    @invariant()
    def indexes_are_those_of_the_objects(self) -> None:
        for informer in self.informers.values():
            for colour in COLOURS:
                names = sorted(o.metadata.name for o in informer.store.list() if colours(o) == [colour])
                assert sorted(o.metadata.name for o in informer.store.by_index("colour", colour)) == names

    @invariant()
    def a_store_never_goes_back(self) -> None:
        for plural, informer in self.informers.items():
            for key, (_, version) in state(informer.store.list()).items():
                assert version >= self.newest.get((plural, key), 0), f"{plural} {key} goes back to version {version}"
                self.newest[(plural, key)] = version

    @invariant()
    def what_a_write_put_in_stays_until_the_server_shows_more(self) -> None:
        for plural, obj in self.taken[:]:
            store = self.informers[plural].store
            if store.version >= version_of(obj):
                self.taken.remove((plural, obj))
                continue
            held = store.get(obj.metadata.name, obj.metadata.namespace)
            assert held is not None and version_of(held) >= version_of(obj), f"{plural} {obj.metadata.name} is lost"

    def _settle(self) -> None:
        self.gate.open = True
        self.gate.allow(0)
        self.do(asyncio.sleep(SETTLED_WITHIN))
        self.runner.run(self._compare())

    async def _compare(self) -> None:
        nodes, _ = await self.writer.list(NODES)
        maps, _ = await self.writer.list(CONFIGMAPS, "ns", label_selector=SELECTOR)
        for plural, truth in (("nodes", state(nodes)), ("configmaps", state(maps))):
            assert state(self.informers[plural].store.list()) == truth
            assert self.stories[plural].known == truth

    def teardown(self) -> None:
        try:
            self._settle()
        finally:
            for task in self.running:
                task.cancel()
            self.runner.close()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAGE", 2)


def test_store_and_story_are_the_servers_whatever_befalls_the_watch() -> None:
    run_state_machine_as_test(InformerMachine, settings=EXAMPLES)


# --- the machine can fail: each defect is found ---


async def _nothing_is_removed(self: Any, items: Any, version: str) -> None:
    self.store.version = int(version)
    for raw in items:
        self._merge(self._decode(raw), False)


async def _the_store_is_filled_anew_without_a_word(self: Any, items: Any, version: str) -> None:
    self.store.version = int(version)
    for key in self.store.keys():  # noqa: SIM118  a store is no mapping
        self.store.remove(key)
    for raw in items:
        self.store.put(self._decode(raw))


def _an_older_event_undoes_a_write(self: Any, obj: Any, initial: bool) -> None:
    self._put(obj, initial)


def _a_late_end_takes_the_successor(self: Any, raw: Any, obj: Any) -> None:
    self._remove(self._key_of_raw(raw))


def _an_answer_is_put_in_however_late(self: Any, obj: Any) -> bool:
    old = self.get(obj.metadata.name, obj.metadata.namespace)
    if old is not None and version_of(old) >= version_of(obj):
        return False
    self.put(obj)
    self._untold.setdefault((obj.metadata.namespace, obj.metadata.name), old)
    return True


def _a_watch_goes_on_from_wherever_the_server_is(
    self: Client, resource: AnyResource, namespace: str, query: Mapping[str, str], *, timeout: float = 15.0
) -> Any:
    return self._transport.stream(resource.path(namespace), query={**query, "resourceVersion": ""}, timeout=timeout)


DEFECTS: list[tuple[object, str, Callable[..., Any]]] = [
    (Informer, "_replace", _nothing_is_removed),
    (Informer, "_replace", _the_store_is_filled_anew_without_a_word),
    (Informer, "_merge", _an_older_event_undoes_a_write),
    (Informer, "_deleted", _a_late_end_takes_the_successor),
    (Store, "apply_write", _an_answer_is_put_in_however_late),
    (Client, "watch", _a_watch_goes_on_from_wherever_the_server_is),
]
FOUND_WITHIN = settings(
    EXAMPLES, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False, print_blob=False
)
"""Without shrinking: that it is found is all that is asked here."""


@pytest.mark.parametrize(("owner", "name", "defect"), DEFECTS, ids=[d.__name__.strip("_") for _, _, d in DEFECTS])
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, defect: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, name, defect)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(InformerMachine, settings=FOUND_WITHIN)
