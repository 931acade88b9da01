"""What the controller knows of the stop, and what it asks before anything begins."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from reconciler.api import names
from reconciler.api.meta import ConfigMap, ObjectMeta
from reconciler.controller.stopping import Held, StopSwitch
from reconciler.controller.world import NODE_INDEX, World
from reconciler.kube import stop
from reconciler.kube.client import Client
from reconciler.kube.errors import Forbidden
from reconciler.kube.resources import CONFIGMAPS
from reconciler.kube.store import Store
from reconciler.phases.facts import Stop
from reconciler.sim import clock
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer, Trouble

NS = names.NAMESPACE
BODY = {"metadata": {"name": names.STOP_NAME}}


class Bench:
    def __init__(self) -> None:
        self.clock = clock.VirtualClock()
        self.server = ApiServer(clock=self.clock, rng=random.Random(1))
        self.client = Client(MemoryTransport(self.server, user="controller"), rng=random.Random(2))
        self.store: Store[ConfigMap] = Store()
        self.world = World(
            namespace=NS,
            nodes=Store(),
            pods=Store({NODE_INDEX: lambda pod: [pod.spec.node_name]}),
            runtimes=Store(),
            revisions=Store(),
            classes=Store(),
        )
        self.switch = StopSwitch(self.client, self.store, self.world, self.clock)

    @property
    def asked(self) -> int:
        return sum(1 for a in self.server.audit if a.method == "GET" and a.target.kind.plural == "configmaps")


def stored(**meta: Any) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(**{"name": names.STOP_NAME, "namespace": NS, "uid": "s", **meta}))


def test_the_watch_tells_who_stopped_everything_and_for_how_long_it_was_so() -> None:
    async def main() -> None:
        b = Bench()
        b.store.put(
            ConfigMap(metadata=stored().metadata, data={"by": "ann", "at": "2026-01-02T03:04:05Z", "reason": "x"})
        )
        b.switch.note(initial=False)
        begun = b.clock.now()
        words = "everything is stopped by ann since 2026-01-02T03:04:05Z: x"
        assert b.world.stopping.words == words
        assert b.world.stopping.told == f"{words}; `kubectl reconciler resume` lifts it"
        b.switch.note(initial=False)
        assert b.world.stopping.spans == (Stop(begun),)
        b.store.remove((NS, names.STOP_NAME))
        b.switch.note(initial=False)
        assert (b.world.stopping.words, b.world.stopping.spans) == ("", (Stop(begun, b.clock.now()),))

    clock.run(main())


@pytest.mark.parametrize(("ago", "seen"), [(600, 600), (-600, 0)])
def test_a_stop_that_is_there_at_the_first_list_has_lasted_since_it_was_made_unless_that_is_to_come(
    ago: float, seen: float
) -> None:
    async def main() -> None:
        b = Bench()
        now = b.clock.now()
        b.store.put(stored(creation_timestamp=now - timedelta(seconds=ago)))
        b.switch.note(initial=True)
        assert b.world.stopping.spans == (Stop(now - timedelta(seconds=seen)),)

    clock.run(main())


def test_where_it_may_not_be_watched_nobody_can_tell_and_that_is_as_if_stopped() -> None:
    async def main() -> None:
        b = Bench()
        b.world.blind["configmaps"] = "no right"
        b.switch.note(initial=False)
        words = "nobody can tell whether everything is stopped: no right"
        assert b.world.stopping.words == words
        assert b.world.stopping.told == f"{words}; see the rules of deploy/base/rbac.yaml"
        with pytest.raises(Held):
            await b.switch.confirm()

    clock.run(main())


def test_a_stop_that_the_watch_has_not_told_of_is_found_by_asking() -> None:
    async def main() -> None:
        b = Bench()
        await b.client.create(CONFIGMAPS, BODY, NS)
        with pytest.raises(Held):
            await b.switch.confirm()
        assert b.world.stopping.words.startswith("everything is stopped since ")
        assert b.store.get(names.STOP_NAME, NS) is not None  # so the next list tells of its end

    clock.run(main())


def test_one_answer_serves_everything_that_begins_within_half_a_second() -> None:
    async def main() -> None:
        b = Bench()
        await asyncio.gather(*(b.switch.confirm() for _ in range(50)))
        assert b.asked == 1
        await asyncio.sleep(0.5)
        await b.switch.confirm()
        assert b.asked == 2

    clock.run(main())


def test_an_answer_that_took_too_long_is_not_believed() -> None:
    async def main() -> None:
        b = Bench()
        b.server.knobs.trouble = lambda request: Trouble(delay=stop.BELIEVED + 0.1)
        with pytest.raises(Held, match="nobody can tell now"):
            await b.switch.confirm()
        assert b.asked == 5
        assert b.world.stopping.words == ""  # nobody has stopped anything, as far as is known

    clock.run(main())


def test_a_right_that_is_missing_is_an_error_and_nothing_begins() -> None:
    async def main() -> None:
        b = Bench()
        b.server.knobs.rights.take("controller", "get", "configmaps")
        with pytest.raises(Forbidden):
            await b.switch.confirm()

    clock.run(main())
