"""The reflector's state machine: what leads to a new list, what to a new watch, and how long it waits."""

import random

import pytest

from reconciler.kube.reflector import Input, Phase, State, delay, step

WATCHING = State(Phase.WATCH, "7", 0)


def test_a_list_is_followed_by_a_watch_from_its_version() -> None:
    assert step(State(), Input.LISTED, version="7", lasted=0.1) == State(Phase.WATCH, "7", 0)


def test_a_failed_list_is_tried_again_later() -> None:
    assert step(State(), Input.LIST_FAILED, version="", lasted=0.1) == State(Phase.LIST, "", 1)


def test_an_expired_version_leads_to_a_new_list() -> None:
    assert step(WATCHING, Input.EXPIRED, version="9", lasted=30) == State(Phase.LIST, "", 1)


def test_a_silent_watch_leads_to_a_new_list() -> None:
    assert step(WATCHING, Input.SILENT, version="9", lasted=70) == State(Phase.LIST, "", 1)


def test_a_watch_that_ends_politely_goes_on_at_once_from_the_newest_version() -> None:
    assert step(WATCHING, Input.ENDED, version="9", lasted=30) == State(Phase.WATCH, "9", 0)


def test_a_watch_that_ends_within_a_second_has_failed() -> None:
    assert step(WATCHING, Input.ENDED, version="7", lasted=0.9) == State(Phase.WATCH, "7", 1)


def test_a_broken_watch_has_failed_however_long_it_lasted_but_its_past_is_forgiven_after_two_minutes() -> None:
    tired = State(Phase.WATCH, "7", 5)
    assert step(tired, Input.BROKEN, version="8", lasted=119) == State(Phase.WATCH, "8", 6)
    assert step(tired, Input.BROKEN, version="8", lasted=120) == State(Phase.WATCH, "8", 1)


@pytest.mark.parametrize(
    ("failures", "limit"), [(0, 0.0), (1, 0.8), (2, 1.6), (3, 3.2), (6, 25.6), (7, 30.0), (400, 30.0)]
)
def test_the_wait_doubles_from_0_8_to_30_seconds_with_full_jitter(failures: int, limit: float) -> None:
    rng = random.Random(1)
    waits = [delay(State(failures=failures), rng) for _ in range(500)]
    assert max(waits) <= limit
    assert max(waits) >= 0.98 * limit
    assert min(waits) <= 0.02 * limit
