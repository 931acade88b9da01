"""A run is a function of its plan; a short soak is clean; what once failed does not fail again.

Played in processes of their own, as `make soak` does: sets of strings are ordered by a hash that is another one in each
process, unless PYTHONHASHSEED says otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 8
KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
WORKS = """
import os, time
from tests.soak.pool import processes
pool = processes(1)
pool.submit(os.write, 1, b"at work\\n")
pool.submit(time.sleep, 600).result()
"""
LIMIT = 600
"""Seconds for one process; a run takes one or two on a machine that does nothing else."""
DIGESTS = """
import json, sys
from tests.soak import plans
from tests.soak.playing import play
print(json.dumps([play(plans.draw(int(seed))).digest for seed in sys.argv[1:]]))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def digests(*seeds: int) -> list[str]:
    """What the plays of these seeds did, one after the other in one process."""
    done = run("-c", DIGESTS, *map(str, seeds))
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_run_is_a_function_of_its_seed_in_every_process_and_after_any_other_run() -> None:
    first, second = digests(4, 11)
    assert first != second
    assert digests(11, 4) == [second, first]


def test_faulty_rollouts_end_well() -> None:
    done = run("-m", "tests.soak", "--seeds", str(SEEDS), "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"runs              {SEEDS}, failed 0" in done.stdout


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_failed_does_not_fail_again(path: Path) -> None:
    done = run("-m", "tests.soak", "--plan", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_processes_end_when_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", WORKS], cwd=ROOT, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == "at work\n"
        made.kill()
        assert made.communicate(timeout=60)[0] == ""  # the end of a pipe that its processes hold as well
