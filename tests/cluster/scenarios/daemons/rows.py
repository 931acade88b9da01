"""Which rows there are."""

from __future__ import annotations

from tests.cluster.lab import THOROUGH, Lab, Verdict
from tests.cluster.scenarios.daemons import changes, failures
from tests.cluster.scenarios.daemons.rounds import IN_SHORT, ROUNDS, Row, play

ROWS: dict[str, Row] = {
    "a change and its removal": changes.there_and_back,
    "a slow start, a hung shim": changes.slow_start,
    "CRI broken at start, near the start limit": failures.broken_at_start,
    "no inotify instance left": failures.no_inotify_instance,
    "the last inotify instance goes in the change": failures.instances_gone_in_the_change,
    "the agent killed while CRI is down": failures.agent_killed,
}


def run(lab: Lab, verdict: Verdict, loops: int) -> None:
    play(lab, verdict, ROWS, IN_SHORT if loops < THOROUGH else ROUNDS)
