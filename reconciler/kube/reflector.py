"""List and watch as an explicit state machine: one enum of states, one step function.

It knows no clock and does no IO: the informer feeds it what came and carries out what it asks for.
Both roads of 410 (an HTTP status, an ERROR event) and the in-stream 504 `Too large resource version`
lead to a new list. A watch that closes within a second, or stays silent for longer than the
bookmarks allow, has failed; after a silence a new list is made, because a server whose store was put back to a backup
is silent about all versions that it has not reached yet.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, replace

BACKOFF_MIN = 0.8
BACKOFF_MAX = 30.0
"""Seconds, with full jitter: client-go's reflector."""
HEALTHY_AFTER = 120.0
"""Seconds of a good watch after which the backoff begins anew."""
SILENCE = 70.0
"""Seconds: the API server sends a bookmark about every minute."""
SHORT = 1.0
"""Seconds: a watch that ends sooner has failed, however politely."""
WATCH_TIMEOUT = 290.0
"""Seconds that the server is asked to keep a watch; spread by the informer over [1, 2) of it."""


class Phase(enum.Enum):
    LIST = "list"
    WATCH = "watch"


class Input(enum.Enum):
    """What can come of carrying a phase out."""

    LISTED = "listed"
    LIST_FAILED = "list-failed"
    EXPIRED = "expired"
    """410 by either road, or `Too large resource version`."""
    ENDED = "ended"
    """The stream came to its end."""
    BROKEN = "broken"
    """The stream broke, or was refused."""
    SILENT = "silent"
    """Nothing came for longer than the bookmarks allow."""


@dataclass(frozen=True)
class State:
    """`version` is what a watch would go on from; `failures` in a row drive the backoff."""

    phase: Phase = Phase.LIST
    version: str = ""
    failures: int = 0
    asked: float = 0.0
    """Seconds that the server asked to wait (Retry-After)."""


def step(state: State, came: Input, *, version: str, lasted: float, asked: float = 0.0) -> State:
    """The next state. `version` is the newest seen, `lasted` the seconds that the phase took.

    A Retry-After of more than BACKOFF_MAX is taken for that: who asks for an hour is asked again before.
    """
    return replace(_next(state, came, version, lasted), asked=min(asked, BACKOFF_MAX))


def _next(state: State, came: Input, version: str, lasted: float) -> State:
    if came is Input.LISTED:
        return replace(state, phase=Phase.WATCH, version=version)
    if came is Input.LIST_FAILED:
        return replace(state, phase=Phase.LIST, failures=state.failures + 1)
    failures = 0 if lasted >= HEALTHY_AFTER else state.failures
    if came in (Input.EXPIRED, Input.SILENT):
        return State(Phase.LIST, "", failures + 1)
    if came is Input.ENDED and lasted >= SHORT:
        return State(Phase.WATCH, version, failures)
    return State(Phase.WATCH, version, failures + 1)


def delay(state: State, rng: random.Random) -> float:
    """Seconds to wait before the phase is carried out: none at first, then full jitter under a growing limit.

    What the server asked for comes on top, so that those it asked at once do not come back at once.
    """
    if state.failures == 0:
        return state.asked
    limit = min(BACKOFF_MIN * 2.0 ** min(state.failures - 1, 10), BACKOFF_MAX)
    return state.asked + rng.uniform(0.0, limit)
