"""Long walks: `python -m tests.simulation.operations --seeds 100`. Exit: 0 all clean, 1 a walk failed."""

from __future__ import annotations

import argparse
import functools
import logging
import sys
import time

from tests.simulation.operations.search import shorten, steps_of
from tests.simulation.operations.walk import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.operations", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of walks")
    parser.add_argument("--first", type=int, default=1, help="seed of the first one")
    parser.add_argument("--length", type=int, default=12, help="steps of a walk")
    parser.add_argument("--no-shorten", action="store_true", help="print failing walks as they are")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no walk after so many")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun, walks, failed = time.monotonic(), 0, []
    for seed in range(options.first, options.first + options.seeds):
        if time.monotonic() - begun > options.seconds:
            break
        walks += 1
        steps = steps_of(seed, options.length)
        fault = run(steps, seed=seed)
        if not fault:
            continue
        failed.append(seed)
        if not options.no_shorten:
            steps = shorten(steps, functools.partial(run, seed=seed))
            fault = run(steps, seed=seed)
        print(f"seed {seed} fails:", *(f"  {step}" for step in steps), fault, "", sep="\n", flush=True)
    seconds = time.monotonic() - begun
    print(f"{walks} walks of {options.length} steps in {seconds:.0f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
