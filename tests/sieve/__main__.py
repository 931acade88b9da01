"""`python -m tests.sieve`: every point of every story; exit code 1 when something was wrong at one of them."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.sieve import points
from tests.sieve.points import PATTERNS, Point, tried
from tests.sieve.report import failure
from tests.sieve.run import Record, run
from tests.sieve.stories import STORIES


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sieve", description=__doc__)
    parser.add_argument("--story", choices=STORIES, action="append", help="default: all of them")
    parser.add_argument("--pattern", choices=PATTERNS, action="append", help="default: all of them")
    parser.add_argument("--match", default="", metavar="PATTERN", help="only points whose name this expression finds")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run every N-th point of each pattern")
    parser.add_argument("--first", type=int, default=0, metavar="M", help="begin with the M-th, from 0")
    parser.add_argument("--only", metavar="NAME", help="run this point alone, and print its timeline")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args(arguments)
    begun = time.monotonic()
    found, chosen = _chosen(asked)
    if asked.only and not chosen:
        parser.error(f"no such point: {asked.only}")
    with multiprocessing.get_context("spawn").Pool(asked.jobs) as pool:
        results = pool.imap_unordered(tried, chosen, chunksize=4)
        bad, told = _told(results, whole=bool(asked.only))
    for pattern in PATTERNS:
        if found[pattern]:
            print(f"{pattern}: {found[pattern]} points, {told[pattern]} run, {bad[pattern]} bad")
    if told["unobserved"]:
        late = told["unobserved"] - told["merged"]
        print(f"unobserved: the changes were seen as one in {told['merged']}, late in {late}, as nothing followed them")
    print(f"{told['seconds'] / 3600:.1f} simulated hours in {time.monotonic() - begun:.0f} s")
    return 1 if bad.total() else 0


def _chosen(asked: argparse.Namespace) -> tuple[Counter[str], list[Point]]:
    """How many there are of each pattern, and those that are to be run."""
    found: Counter[str] = Counter()
    chosen: list[Point] = []
    stories = [asked.only.split("/")[1]] if asked.only else asked.story or [*STORIES]
    for name in stories:
        record = run(STORIES[name])
        if record.problems:
            raise SystemExit(f"{name}: without any fault: {record.problems}")
        for point in points.of(STORIES[name], record):
            if asked.only or (point.pattern in (asked.pattern or PATTERNS) and re.search(asked.match, point.name)):
                number = found[point.pattern]
                found[point.pattern] += 1
                if point.name == asked.only or (not asked.only and number % asked.every == asked.first):
                    chosen.append(point)
    return found, chosen


def _told(results: Iterable[tuple[Point, Record]], *, whole: bool) -> tuple[Counter[str], Counter[str]]:
    """Print what was wrong; how many were bad and how many were run, by pattern."""
    bad: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for point, record in results:
        told.update({point.pattern: 1, "seconds": round(record.seconds), "merged": int(record.merged)})
        if record.problems:
            bad[point.pattern] += 1
        if record.problems or whole:
            print(failure(point, record, timeline=whole or bad.total() == 1), flush=True)
    return bad, told


def again() -> None:
    """In a process in which strings hash as in every other: a point is told by its number in a run."""
    command = [sys.executable, "-m", "tests.sieve", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    if "PYTHONHASHSEED" not in os.environ:
        again()
    raise SystemExit(main(sys.argv[1:]))
