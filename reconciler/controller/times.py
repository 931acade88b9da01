"""Times that may be compared: our own wall clock may jump, and other machines' clocks are theirs.

As with a Lease (`reconciler.kube.lease`), what another machine says of time is only taken for a mark: when it changes,
what counts is when *we* saw it change.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from reconciler.api.clock import Clock


class SteadyClock:
    """Wall time as it was at the last `set`, and seconds of the monotonic clock since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._base: tuple[datetime, float] | None = None

    def set(self) -> None:
        """Take the wall clock as it is now."""
        self._base = (self._clock.now(), self._clock.monotonic())

    def now(self) -> datetime:
        if self._base is None:
            self.set()
        assert self._base is not None
        wall, begun = self._base
        return wall + timedelta(seconds=self._clock.monotonic() - begun)

    def monotonic(self) -> float:
        return self._clock.monotonic()


@dataclass
class Sightings:
    """When we first saw what others say of time, on our own clock. Bounded by what is `forgotten`."""

    _seen: dict[tuple[str, Hashable], tuple[datetime, datetime]] = field(default_factory=dict)
    """(owner, what) → what was told, and when that was for us."""

    def of(self, owner: str, what: Hashable, told: datetime, now: datetime) -> datetime:
        """When `told` was. At first sight it is believed unless it is to come; a change of it is now."""
        before = self._seen.get((owner, what))
        if before is not None and before[0] == told:
            return before[1]
        moment = min(told, now) if before is None else now
        self._seen[owner, what] = (told, moment)
        return moment

    def forget(self, owner: str) -> None:
        for key in [key for key in self._seen if key[0] == owner]:
            del self._seen[key]

    def clear(self) -> None:
        self._seen.clear()
