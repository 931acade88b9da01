"""A run is a function of its plan; and a short soak of many faults is clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import plans
from tests.soak.playing import play

ROOT = Path(__file__).parents[2]
SEEDS = range(1, 13)
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
_IN_ANOTHER = """
import json, sys
from tests.soak import plans
from tests.soak.playing import play
print(json.dumps([play(plans.draw(int(seed))).digest for seed in sys.argv[1:]]))
"""


def digests(*seeds: int) -> list[str]:
    """What the plays of these seeds did, one after the other in a process of their own."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", _IN_ANOTHER, *map(str, seeds)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_run_is_a_function_of_its_seed_in_every_process_and_after_any_other_run() -> None:
    first, second = digests(4, 11)
    assert first != second
    assert digests(11, 4) == [second, first]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_faulty_rollout_ends_well(seed: int) -> None:
    outcome = play(plans.draw(seed))
    assert outcome.problems == [], "\n".join(outcome.timeline)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_failed_does_not_fail_again(path: Path) -> None:
    outcome = play(plans.read(path))
    assert outcome.problems == [], "\n".join(outcome.timeline)
