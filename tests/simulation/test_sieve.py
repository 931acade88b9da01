"""A sample of `python -m tests.sieve`: crashes, stale views and swallowed changes at some points of each run."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sieve import points
from tests.sieve.defects import DEFECTS, Defect, caught
from tests.sieve.points import PATTERNS, Point, tried
from tests.sieve.report import failure
from tests.sieve.run import run
from tests.sieve.stories import STORIES

SAMPLE = 2
"""Points of each pattern, story and kind of process: all of them take 15 s of a quiet core."""
TRIES = 40
"""Points at which a defect is looked for at most."""


@cache
def all_points(story: str) -> tuple[Point, ...]:
    record = run(STORIES[story])
    assert record.problems == []
    return tuple(points.of(STORIES[story], record))


def sample(pattern: str, story: str) -> list[Point]:
    chosen: list[Point] = []
    for process in ("controller", "agent"):
        found = [p for p in all_points(story) if p.name.startswith(f"{pattern}/{story}/{process}")]
        chosen += found[len(found) // (2 * SAMPLE) :: max(1, len(found) // SAMPLE)][:SAMPLE]
    return chosen


@pytest.mark.parametrize("story", STORIES)
def test_every_step_version_and_pair_of_a_run_is_a_point(story: str) -> None:
    """Far fewer would mean that the run is not recorded any more, and that nothing is tried."""
    count = Counter(point.pattern for point in all_points(story))
    print(f"{story}: {dict(count)}")
    assert len({point.name for point in all_points(story)}) == count.total()
    assert count["intermediate"] > 1000
    assert count["stale"] > 4000
    assert count["unobserved"] > 200


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_run_ends_well_whatever_is_done_at_one_point(pattern: str, story: str) -> None:
    chosen = sample(pattern, story)
    assert len(chosen) == 2 * SAMPLE
    for point in chosen:
        _, record = tried(point)
        assert not record.problems, failure(point, record)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.planted.__name__)
def test_a_planted_defect_is_caught_by_its_pattern_and_by_nothing_less(defect: Defect) -> None:
    assert caught(defect, tries=TRIES) != ""
