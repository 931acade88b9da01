"""Time as an argument: the pure parts get `now`, the shell gets a `Clock`.

Monotonic time is the event loop's, so that a virtual clock of the loop drives everything.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the shell may ask about time."""

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""

    def now(self) -> datetime:
        """Wall clock, aware, UTC; may jump."""


class SystemClock:
    """The running event loop's monotonic clock and the machine's wall clock."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """`2026-01-02T03:04:05.678Z`: UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
