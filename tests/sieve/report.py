"""What is told of a point at which something was wrong."""

from __future__ import annotations

from tests.sieve.points import Point
from tests.sieve.run import Record

LINE = 240
"""Characters of a line of a timeline."""


def failure(point: Point, record: Record, *, timeline: bool = True) -> str:
    """What was wrong, all that happened, and the command that runs this point alone."""
    lines = [f"--- {point.name}", *record.problems]
    if timeline:
        lines += [line[:LINE] for line in record.lines]
    return "\n".join([*lines, f"again: python -m tests.sieve --only {point.name}"])
