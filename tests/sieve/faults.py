"""What is done to a run at one point. A fault is told of everything that happens, and acts once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.sim.kinds import Kind
from reconciler.sim.server import Trouble
from reconciler.sim.store import Event, Key, Store

LAG_SECONDS = 40.0
"""For which a cache lags: a new leader begins after 11 to 15 s, and a silent watch is given up after 70."""
HELD_SECONDS = 10.0
"""For which a change is withheld when no other change of the object comes: what waits for it would never go on."""


class Side(StrEnum):
    BEFORE = "before"
    """Nothing of it is done."""
    AFTER = "after"
    """It is done, and who asked does not hear of it."""
    HALF = "half"
    """Of a write to a file: one half of the bytes."""


@dataclass
class Hands:
    """What a fault may do to the world."""

    store: Store
    kill: Callable[[str], None]
    """Of the process of that name."""
    say: Callable[[str], None]


class Fault:
    """Does nothing."""

    hands: Hands
    acted = False

    def step(self, actor: str, number: int, what: str, side: Side) -> None:
        """`actor` is about to do its step `number`, or has just done it."""

    def tears(self, actor: str, number: int) -> bool:
        """Whether only a half of that write is to be done."""
        return False

    def request(self, actor: str, number: int, what: str) -> Trouble | None:
        """As `step`, for a request to the API server."""
        return None

    def wrote(self, kind: Kind, event: Event) -> None:
        """The store has another version."""

    def horizon(self, user: str, kind: Kind) -> int | None:
        """As `Past.horizon`."""
        return None

    def merges(self, user: str, kind: Kind) -> bool:
        """As `Past.merges`."""
        return False


@dataclass
class Crash(Fault):
    """SIGKILL of `actor` right before or right after its step `number`, which is known to be `what`."""

    actor: str
    number: int
    side: Side
    what: str

    def step(self, actor: str, number: int, what: str, side: Side) -> None:
        if (actor, number, side) == (self.actor, self.number, self.side):
            self._strike(what)

    def tears(self, actor: str, number: int) -> bool:
        struck = (actor, number, Side.HALF) == (self.actor, self.number, self.side)
        if struck:
            self._strike("disk write")
        return struck

    def request(self, actor: str, number: int, what: str) -> Trouble | None:
        if (actor, number) != (self.actor, self.number):
            return None
        self._strike(what)
        return Trouble(drop_before=True) if self.side is Side.BEFORE else Trouble(drop_after=True)

    def _strike(self, what: str) -> None:
        if what != self.what:
            raise Drifted(f"step {self.number} of {self.actor} is {what!r}, it was {self.what!r} in the record")
        self.acted = True
        self.hands.say(f"*** {self.actor} is killed, {self.side} {what}")
        self.hands.kill(self.actor)


@dataclass
class Lag(Fault):
    """From version `moment` on, `actor` is shown what was so `behind` events ago, for LAG_SECONDS.

    `kinds`: plurals of those that lag; empty: all, and events of all are counted. With `restart` it is killed at that
    moment, and so it is the next one that lists and watches.
    """

    actor: str
    moment: int
    kinds: frozenset[str]
    behind: int
    restart: bool
    _versions: dict[str, list[int]] = field(default_factory=dict)
    _lags: bool = False

    def wrote(self, kind: Kind, event: Event) -> None:
        self._versions.setdefault(kind.plural if self.kinds else "", []).append(event.version)
        if event.version >= self.moment and not self.acted:
            self._begin()

    def horizon(self, user: str, kind: Kind) -> int | None:
        if not self._lags or user != self.actor or (self.kinds and kind.plural not in self.kinds):
            return None
        versions = self._versions.get(kind.plural if self.kinds else "", [])
        return versions[-self.behind] - 1 if len(versions) >= self.behind else 1

    def _begin(self) -> None:
        self.acted = self._lags = True
        what = ", ".join(sorted(self.kinds)) or "everything"
        killed = " and is killed" if self.restart else ""
        self.hands.say(f"*** {self.actor} is shown {what} {self.behind} events late{killed}")
        if self.restart:
            self.hands.kill(self.actor)
        asyncio.get_running_loop().call_later(LAG_SECONDS, self._end)

    def _end(self) -> None:
        self._lags = False
        self.hands.say(f"*** {self.actor} is shown everything")
        self.hands.store.wake_all()


@dataclass
class Swallow(Fault):
    """`actor` does not see the change that makes version `moment`, nor the next ones of that object: `count` in all.

    It sees what comes of them, and of the change after them, as one. Its watch of that kind stands still meanwhile, as
    a broken one does until the list after it; for HELD_SECONDS when no such change comes.
    """

    actor: str
    moment: int
    count: int
    merged: bool = False
    """Whether the change after them came in time."""
    _at: tuple[Kind, Key] | None = None
    _left: int = 0
    _horizon: int | None = None
    _merging: bool = False

    def wrote(self, kind: Kind, event: Event) -> None:
        if self._horizon is not None and self._at == (kind, event.key):
            self._left -= 1
            if self._left <= 0:
                self.merged = True
                self._release("and what follows, as one")
        if event.version == self.moment:
            self.acted = self._merging = True
            self._at, self._left, self._horizon = (kind, event.key), self.count, event.version - 1
            self.hands.say(f"*** {self.actor} does not see version {event.version}, of {kind.plural} {event.key[1]}")
            asyncio.get_running_loop().call_later(HELD_SECONDS, self._release, "late: nothing followed")

    def horizon(self, user: str, kind: Kind) -> int | None:
        return self._horizon if user == self.actor and self._at is not None and self._at[0] == kind else None

    def merges(self, user: str, kind: Kind) -> bool:
        return self._merging and user == self.actor

    def _release(self, how: str) -> None:
        if self._horizon is None:
            return
        self._horizon = None
        self.hands.say(f"*** {self.actor} sees it {how}")
        self.hands.store.wake_all()
        asyncio.get_running_loop().call_later(0.001, self._over)

    def _over(self) -> None:
        self._merging = False


class Drifted(Exception):
    """The run before the point was not the recorded one: a point cannot be told by its number."""
