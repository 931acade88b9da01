"""Leader election by a Lease, counted on the monotonic clock.

What the Lease says about time is another machine's wall clock and is never compared with ours: a
standby counts from when *it* saw the Lease change last, a leader from when it *sent* its last good renewal.
A leader that cannot renew stops its work before anybody else may begin. It is the same with a Lease that somebody
deleted: a standby that saw it held waits for as long as its holder may still think that it leads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from reconciler.api.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, TransportError
from reconciler.kube.resources import LEASES, Lease

log = logging.getLogger(__name__)

GONE = ""
"""Stands for the version of a Lease that is not there."""


class Elector:
    """Seconds: `duration` until others may take over, `renew_deadline` until we stop, `retry` between tries."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        rng: random.Random,
        duration: float = 10.0,
        renew_deadline: float = 7.0,
        retry: float = 2.0,
    ) -> None:
        if not retry < renew_deadline < duration:
            raise ValueError("lease: retry < renew_deadline < duration must hold")
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._retry = retry
        self._seen: tuple[str, float] | None = None
        """The Lease's version (GONE: it was deleted), and when it was first seen."""
        self._holder = ""
        """Of the Lease as it was seen last."""
        self._held: Lease | None = None
        self._leading = False
        self._renewed = 0.0
        """When the last good renewal was sent, monotonic."""

    @property
    def is_leader(self) -> bool:
        """False as soon as the deadline is over, even before anything could be cancelled (a stopped process)."""
        return self._leading and self._clock.monotonic() < self._renewed + self._renew_deadline

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign, lead, campaign again after a loss. On a clean stop the Lease is given back."""
        try:
            while True:
                self._renewed = await self._campaign()
                await self._lead(lead)
        finally:
            if self._held is not None:
                await asyncio.shield(self._release())

    async def _campaign(self) -> float:
        while True:
            sent = self._clock.monotonic()
            if await self._try(self._renew_deadline):
                return sent
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Sooner when the holder's time is almost over, so that a gap stays short."""
        normal = self._retry * (0.8 + 0.4 * self._rng.random())
        if self._seen is None:
            return normal
        left = self._seen[1] + self._duration - self._clock.monotonic()
        return min(normal, left) if left > 0 else normal

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        self._leading = True
        log.info("became leader", extra={"identity": self._identity})
        work = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leading = False
            for task in (work, renewing):
                task.cancel()
            failed, lost = await asyncio.gather(work, renewing, return_exceptions=True)
        log.info("leading ended", extra={"identity": self._identity})
        for error in (failed, lost):
            if isinstance(error, Exception):
                raise error

    async def _renew(self) -> None:
        """Return when the Lease is lost, or could not be renewed in time."""
        while True:
            pause = self._retry * (0.8 + 0.2 * self._rng.random())
            await asyncio.sleep(min(pause, max(self._left(), 0.0)))
            sent = self._clock.monotonic()
            left = self._left()
            if left <= 0:
                log.warning("lease not renewed in time")
                self._held = None
                return
            # half of the deadline at most: a connection that died silently leaves time for a second try
            if await self._try(min(left, self._renew_deadline / 2)):
                self._renewed = sent
            elif self._held is None:
                log.warning("lease lost to another replica")
                return

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._renewed + self._renew_deadline - self._clock.monotonic()

    async def _try(self, timeout: float) -> bool:
        """One try to take or keep the Lease. `_held` is None afterwards when somebody else has it."""
        try:
            async with asyncio.timeout(timeout):
                return await self._take()
        except (ApiError, TransportError, TimeoutError) as error:
            log.warning("lease cannot be reached", extra={"error": str(error) or f"no answer in {timeout:.1f} s"})
            return False

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            return await self._create() if self._free(GONE, self._duration) else False
        self._holder = lease.spec.holder_identity or ""
        allowed = float(lease.spec.lease_duration_seconds or self._duration)
        if not self._free(lease.metadata.resource_version, allowed):
            return False
        try:
            taken = await self._client.replace(LEASES, self._name, self._body(lease), self._namespace)
        except Conflict:
            return False
        self._keep(taken)
        return True

    def _free(self, version: str, allowed: float) -> bool:
        """Whether nobody else can think that it leads: the holder's `allowed` seconds are over since that version."""
        now = self._clock.monotonic()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        if self._holder in ("", self._identity):
            return True
        self._held = None
        return now >= self._seen[1] + allowed

    async def _create(self) -> bool:
        try:
            self._keep(await self._client.create(LEASES, self._body(None), self._namespace))
        except AlreadyExists:
            return False
        return True

    def _keep(self, lease: Lease) -> None:
        self._held = lease
        self._holder = self._identity
        self._seen = (lease.metadata.resource_version, self._clock.monotonic())

    def _body(self, lease: Lease | None, *, release: bool = False) -> dict[str, Any]:
        now = self._clock.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        before = None if lease is None else lease.spec
        same = before is not None and before.holder_identity == self._identity
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if lease is not None:
            metadata["resourceVersion"] = lease.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": "" if release else self._identity,
                "leaseDurationSeconds": 1 if release else int(self._duration),
                "acquireTime": before.acquire_time if same and before is not None else now,
                "renewTime": now,
                "leaseTransitions": (before.lease_transitions or 0) + (not same) if before is not None else 0,
            },
        }

    async def _release(self) -> None:
        held, self._held = self._held, None
        try:
            async with asyncio.timeout(2.0):
                await self._client.replace(LEASES, self._name, self._body(held, release=True), self._namespace)
        except (ApiError, TransportError, TimeoutError) as error:
            log.warning("lease not released", extra={"error": str(error)})
