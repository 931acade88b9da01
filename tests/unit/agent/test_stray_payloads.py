"""A payload whose pod somebody deleted by force is stopped when kubelet does not get rid of it, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from reconciler.agent.strays import Strays
from reconciler.api import names
from reconciler.kube.errors import NotFound
from reconciler.sim import clock
from tests.unit.agent.bench import OUTAGE, Bench, pod

PHASE = {names.COMPONENT_LABEL: names.COMPONENT_PHASE}


class Api:
    """A client that knows pods by name."""

    def __init__(self, **pods: str) -> None:
        self.uids = pods

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if name not in self.uids:
            raise NotFound(404, "NotFound", name)
        return pod(self.uids[name])


def play(bench: Bench, main: Callable[[], Awaitable[None]], *known: str, api: Api | None = None) -> None:
    async def body() -> None:
        deps = replace(bench.deps, client=api or Api())
        strays = Strays(deps, bench.barrier, lambda: set(known))
        bench.barrier.open()
        task = asyncio.create_task(strays.run())
        await main()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    clock.run(body())


def run(bench: Bench, uid: str, *, labels: dict[str, str] = PHASE, alive: bool = True) -> None:
    bench.cri.run(uid, alive=alive)
    bench.cri.pods[-1] = replace(bench.cri.pods[-1], labels=labels)


def test_after_an_outage_it_is_stopped_at_once(bench: Bench) -> None:
    run(bench, "p")

    async def main() -> None:
        await asyncio.sleep(5)
        assert bench.cri.stopped == []
        bench.barrier.close("NotServing")
        await asyncio.sleep(1)
        bench.barrier.open()
        await asyncio.sleep(0.1)
        assert bench.cri.stopped == [("c-p", 0), "s-p"]

    play(bench, main)


def test_without_an_outage_kubelet_has_30_seconds(bench: Bench) -> None:
    run(bench, "p")

    async def main() -> None:
        await asyncio.sleep(29)
        assert bench.cri.stopped == []
        await asyncio.sleep(5)
        assert bench.cri.stopped == [("c-p", 0), "s-p"]

    play(bench, main)


@pytest.mark.parametrize(
    ("labels", "alive", "known", "there"),
    [({}, True, (), {}), (PHASE, False, (), {}), (PHASE, True, ("p",), {}), (PHASE, True, (), {"p": "p"})],
    ids=["not ours", "has ended", "of a pod", "of a pod that the watch has not told of yet"],
)
def test_others_are_let_be(
    bench: Bench, labels: dict[str, str], alive: bool, known: tuple[str, ...], there: dict[str, str]
) -> None:
    run(bench, "p", labels=labels, alive=alive)

    async def main() -> None:
        bench.barrier.close("NotServing")
        await asyncio.sleep(1)
        bench.barrier.open()
        await asyncio.sleep(600)
        assert bench.cri.stopped == []

    play(bench, main, *known, api=Api(**there))


def test_another_pod_of_its_name_does_not_save_it(bench: Bench) -> None:
    run(bench, "p")

    async def main() -> None:
        await asyncio.sleep(40)
        assert bench.cri.stopped == [("c-p", 0), "s-p"]

    play(bench, main, api=Api(p="another"))


def test_it_is_tried_again_while_cri_cannot_be_asked(bench: Bench) -> None:
    run(bench, "p")
    bench.cri.error = OUTAGE

    async def main() -> None:
        await asyncio.sleep(60)
        bench.cri.error = None
        await asyncio.sleep(40)
        assert bench.cri.stopped == [("c-p", 0), "s-p"]

    play(bench, main)
