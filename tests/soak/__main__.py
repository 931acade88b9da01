"""`python -m tests.soak --seeds 1000`: plays the plans of many seeds, and makes those that fail small.

Exit code 1 if one failed: its shortest plan is in `build/soak`, and is played again by `--plan FILE`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from reconciler.sim.faults import FAULTS
from tests.soak import plans
from tests.soak.outcome import Outcome
from tests.soak.playing import play
from tests.soak.pool import outcomes, shortened
from tests.soak.report import Report

FOLDER = Path("build/soak")
SHRUNK = 5
"""Failing seeds that are made small; the others are only named."""


def main() -> int:
    options = _options()
    if options.plan:
        return _one(plans.read(options.plan))
    known = set(FAULTS)
    chosen = tuple(options.faults.split(",")) if options.faults else tuple(FAULTS)
    if unknown := sorted(set(chosen) - known):
        print(f"soak: no such fault: {', '.join(unknown)}; there are {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    report = Report()
    begun = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    bad: list[Outcome] = []
    for outcome in outcomes(seeds, chosen, options.jobs):
        report.add(outcome)
        if outcome.problems:
            bad.append(outcome)
            print(f"seed {outcome.plan.seed} FAILED: {outcome.problems[0]}", flush=True)
        if len(report) % 50 == 0:
            print(f"{len(report)} of {len(seeds)} played, {time.monotonic() - begun:.0f} s", flush=True)
    print(report.text(wall=time.monotonic() - begun), flush=True)
    for outcome, again in shortened(bad[:SHRUNK], options.jobs):
        _tell(outcome, again)
    return 1 if report.failed else 0


def _tell(outcome: Outcome, again: Outcome) -> None:
    smallest = again.plan
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{outcome.plan.seed}.json"
    path.write_text(plans.text(smallest))
    path.with_suffix(".txt").write_text("\n".join([*again.problems, "", *again.timeline]) + "\n")
    size = f"{len(smallest.steps)} of {len(outcome.plan.steps)} faults"
    print(f"seed {smallest.seed}: the shortest plan that fails so, {size}:")
    print(plans.text(smallest), end="")
    print("\n".join(f"  {line}" for line in again.timeline[-60:]))
    print("\n".join(f"  {line}" for line in again.problems[:10]))
    print(f"again: python -m tests.soak --plan {path}", flush=True)


def _one(plan: plans.Plan) -> int:
    outcome = play(plan)
    print("\n".join(outcome.timeline))
    print("\n".join(outcome.problems) or "all is well")
    print(f"digest {outcome.digest}")
    return 1 if outcome.problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--faults", default="", help="only these, commas between")
    parser.add_argument("--plan", type=Path, help="play this file once and show its timeline")
    return parser.parse_args()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings: else a run is another one in each process
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
