"""Leader election: one leader at a time, little time without one, work stopped before the deadline."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from reconciler.api.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.lease import Elector
from reconciler.kube.resources import LEASES
from reconciler.sim.clock import VirtualClock, run
from reconciler.sim.link import Link
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer

NS = "system"


class Replica:
    """An elector, its own link to the server, and when its work ran."""

    def __init__(self, server: ApiServer, name: str, clock: Clock) -> None:
        self.link = Link(MemoryTransport(server, user=name))
        self.client = Client(self.link, rng=random.Random(name))
        self.elector = Elector(
            self.client, namespace=NS, name="lock", identity=name, clock=clock, rng=random.Random(name)
        )
        self.spans: list[tuple[float, float]] = []
        self.task = asyncio.ensure_future(self.elector.run(self._lead))

    async def _lead(self) -> None:
        begun = now()
        try:
            await asyncio.Event().wait()
        finally:
            self.spans.append((begun, now()))

    async def kill(self) -> None:
        """As SIGKILL: nothing is given back."""
        self.link.cut = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()


def election(body: Callable[[ApiServer, VirtualClock], Awaitable[Any]]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        await body(ApiServer(clock=clock, rng=random.Random(1)), clock)

    run(main())


async def became_leader(replica: Replica, within: float) -> float:
    """Seconds until it leads."""
    begun = now()
    async with asyncio.timeout(within):
        while not replica.elector.is_leader:  # noqa: ASYNC110  the elector tells nobody, as in production
            await asyncio.sleep(0.05)
    return now() - begun


def test_one_leads_the_other_waits() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a, b = Replica(server, "a", clock), Replica(server, "b", clock)
        await asyncio.sleep(120)
        assert sorted([a.elector.is_leader, b.elector.is_leader]) == [False, True]
        await a.stop()
        await b.stop()
        assert len(a.spans + b.spans) == 1

    election(body)


def test_a_clean_stop_gives_the_lease_back_at_once() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        b = Replica(server, "b", clock)
        await asyncio.sleep(30)
        await a.stop()
        assert await became_leader(b, 60) <= 2.5
        lease = await b.client.get(LEASES, "lock", NS)
        assert lease.spec.holder_identity == "b"
        assert lease.spec.lease_transitions == 1
        await b.stop()

    election(body)


def test_a_killed_leader_is_replaced_within_15_seconds_and_not_before_its_time_is_over() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        b = Replica(server, "b", clock)
        await asyncio.sleep(30)
        await a.kill()
        waited = await became_leader(b, 60)
        assert 7.0 <= waited <= 15.0
        await b.stop()

    election(body)


def test_a_leader_that_is_cut_off_stops_its_work_before_another_begins() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        b = Replica(server, "b", clock)
        await asyncio.sleep(30)
        cut = now()
        a.link.cut = True
        await became_leader(b, 60)
        assert not a.elector.is_leader
        assert a.spans[0][1] - cut <= 7.0
        assert a.spans[0][1] <= now() - 1.0
        a.link.cut = False
        await b.stop()
        await became_leader(a, 60)
        await a.stop()
        assert len(a.spans) == 2

    election(body)


def test_a_server_that_hangs_counts_as_cut_off() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        await asyncio.sleep(10)

        async def hang(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(1000)

        a.link.request = hang  # type: ignore[method-assign]
        hung = now()
        await asyncio.sleep(20)
        assert a.spans[0][1] - hung <= 7.0
        await a.kill()

    election(body)


def test_a_process_that_was_stopped_knows_at_once_that_it_no_longer_leads() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        asyncio.get_running_loop().advance(8)  # type: ignore[attr-defined]
        assert not a.elector.is_leader
        await a.stop()

    election(body)


def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        b = Replica(server, "b", clock)
        await asyncio.sleep(20)
        clock.jump = timedelta(days=400)
        await asyncio.sleep(60)
        clock.jump = timedelta(days=-400)
        await asyncio.sleep(60)
        assert a.elector.is_leader
        assert b.spans == []
        await b.stop()
        await a.stop()

    election(body)


def test_a_lease_that_somebody_deleted_is_made_again() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        await a.client.delete(LEASES, "lock", NS)
        await asyncio.sleep(10)
        assert a.elector.is_leader
        assert a.spans == []
        await a.stop()

    election(body)


def test_a_standby_does_not_take_a_deleted_lease_while_its_holder_may_still_lead() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        await became_leader(a, 1)
        b = Replica(server, "b", clock)
        await asyncio.sleep(30)
        a.link.cut = True
        await b.client.delete(LEASES, "lock", NS)
        waited = await became_leader(b, 60)
        assert 10.0 <= waited <= 15.0
        assert a.spans[0][1] <= now() - 1.0
        a.link.cut = False
        await a.stop()
        await b.stop()

    election(body)


def test_a_replica_that_never_saw_the_lease_makes_it_at_once() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        a = Replica(server, "a", clock)
        assert await became_leader(a, 60) <= 0.1
        await a.stop()

    election(body)


def test_an_error_of_the_work_ends_the_run_and_gives_the_lease_back() -> None:
    async def body(server: ApiServer, clock: VirtualClock) -> None:
        client = Client(MemoryTransport(server, user="a"), rng=random.Random(1))
        elector = Elector(client, namespace=NS, name="lock", identity="a", clock=clock, rng=random.Random(1))

        async def fail() -> None:
            raise RuntimeError("a mistake of ours")

        with pytest.raises(RuntimeError, match="a mistake of ours"):
            await elector.run(fail)
        assert (await client.get(LEASES, "lock", NS)).spec.holder_identity == ""

    election(body)


def test_times_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="retry < renew_deadline < duration"):
        Elector(
            Client(None),  # type: ignore[arg-type]
            namespace=NS,
            name="x",
            identity="x",
            clock=VirtualClock(),
            rng=random.Random(1),
            renew_deadline=11,
        )
