"""Neither a jump of our wall clock nor another machine's clock may stretch or cut a wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.controller.times import Sightings, SteadyClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.wall = NOON
        self.seconds = 100.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_of_the_wall_clock_is_not_seen_until_it_is_set_anew(jump: timedelta) -> None:
    hands = Hands()
    clock = SteadyClock(hands)
    assert clock.now() == NOON
    hands.wall += jump
    hands.seconds += 5
    assert clock.now() == NOON + timedelta(seconds=5)
    clock.set()
    assert clock.now() == NOON + jump


def test_at_first_sight_a_past_time_is_believed_and_a_future_one_is_now() -> None:
    seen = Sightings()
    assert seen.of("n1", "ready", NOON - HOUR, NOON) == NOON - HOUR
    assert seen.of("n2", "ready", NOON + HOUR, NOON) == NOON
    assert seen.of("n2", "ready", NOON + HOUR, NOON + timedelta(minutes=5)) == NOON


@pytest.mark.parametrize("told", [NOON - 3 * HOUR, NOON + HOUR])
def test_a_change_is_when_it_was_seen_whatever_the_other_clock_says(told: datetime) -> None:
    seen = Sightings()
    seen.of("n1", "ready", NOON - HOUR, NOON)
    later = NOON + timedelta(seconds=7)
    assert seen.of("n1", "ready", told, later) == later
    assert seen.of("n1", "ready", told, later + HOUR) == later


def test_what_is_forgotten_is_seen_for_the_first_time_again() -> None:
    seen = Sightings()
    seen.of("n1", "ready", NOON + HOUR, NOON)
    seen.of("n1", "serving", NOON + HOUR, NOON)
    seen.of("n2", "ready", NOON + HOUR, NOON)
    seen.forget("n1")
    assert list(seen._seen) == [("n2", "ready")]
    assert seen.of("n1", "ready", NOON + HOUR, NOON + timedelta(seconds=9)) == NOON + timedelta(seconds=9)
