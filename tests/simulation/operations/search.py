"""Walks from seeds, and the shortest part of one that still fails in the same way."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.operations import fields
from tests.simulation.operations.operations import (
    Create,
    Delete,
    Edit,
    Edits,
    Join,
    Label,
    Leave,
    Operation,
    Revert,
    Step,
    Wrong,
)
from tests.simulation.operations.values import Row, Value, rows

WAITS = (0.0, 0.2, 0.5, 0.9, 1.5, 3.0, 8.0)
"""Seconds between two steps of which the first has not settled: an install takes 3 to 6."""
SETTLED = 0.6
"""Share of the steps that are waited for."""


def edits_of(path: str, value: Any, number: int = 0) -> Edits:
    """The write that sets `path`, with all that must go with it."""
    wanted = value if isinstance(value, Value) else Value(value)
    if "handlers" in wanted.beside:  # the list is replaced, so it is its first item that is meant
        number = 0
    place = path.replace("[]", f"[{number}]", 1).replace("[]", "[0]")
    beside = ((other.replace("[0]", f"[{number}]", 1), what) for other, what in wanted.beside.items())
    return (*beside, (place, wanted.value))


def steps_of(seed: int, length: int = 12) -> list[Step]:
    """A random walk; it begins with an install that settles."""
    rng = random.Random(f"operations/{seed}")
    runtimes = ["kata"] if rng.random() < 0.5 else ["kata", "gvisor"]
    steps = [Step(Create(runtime), None if runtime == runtimes[-1] else 1.5) for runtime in runtimes]
    for _ in range(length):
        wait = None if rng.random() < SETTLED else rng.choice(WAITS)
        steps.append(Step(_operation(rng, rng.choice(runtimes)), wait))
    return steps


def _operation(rng: random.Random, runtime: str) -> Operation:
    kind = rng.choices(
        ("edit", "edits", "revert", "wrong", "delete", "create", "label", "join", "leave"),
        (45, 10, 8, 12, 5, 8, 7, 3, 2),
    )[0]
    match kind:
        case "edit":
            return Edit(runtime, _good(rng, runtime))
        case "edits":
            return Edit(runtime, sum((_good(rng, runtime) for _ in range(rng.randint(2, 4))), ()))
        case "revert":
            return Revert(runtime)
        case "wrong":
            return _wrong(rng, runtime)
        case "delete":
            return Delete(runtime)
        case "create":
            return Create(runtime)
        case "label":
            return Label(f"node-{rng.randint(1, 3)}", "pool", rng.choice(("a", "b", None)))
        case "join":
            return Join(f"node-{rng.randint(4, 5)}")
    return Leave(f"node-{rng.randint(2, 5)}")


def _choose(rng: random.Random, runtime: str, has: Callable[[Row], tuple[Any, ...]]) -> Edits:
    able = [(path, has(row)) for path, row in rows(runtime).items() if has(row)]
    weights = [0.3 if path.startswith("phases.") else 1.0 for path, _ in able]
    path, values = rng.choices(able, weights)[0]
    return edits_of(path, rng.choice(values), rng.choice((0, 0, 1)) if path.startswith("handlers[]") else 0)


def _good(rng: random.Random, runtime: str) -> Edits:
    return _choose(rng, runtime, lambda row: row.good)


def _wrong(rng: random.Random, runtime: str) -> Wrong:
    match rng.choice(("schema", "older CRD", "controller", "node")):
        case "controller":
            return Wrong(runtime, _choose(rng, runtime, lambda row: row.told), "controller")
        case "node":
            return Wrong(runtime, _choose(rng, runtime, lambda row: row.failing), "node")
        case found_by:
            path = rng.choice([path for path in fields.paths() if fields.refused(path)])
            edits = edits_of(path, rng.choice(fields.refused(path)))
            return Wrong(runtime, edits, "schema" if found_by == "schema" else "older CRD")


def shorten(steps: Sequence[Step], fails: Callable[[Sequence[Step]], str], *, tries: int = 150) -> list[Step]:
    """Steps are left out, ever smaller runs of them, for as long as it fails with the same first line."""
    kept, size = [*steps], max(len(steps) // 2, 1)
    same = _kind(fails(kept))
    while size and tries > 0:
        place, shorter = 0, False
        while place < len(kept) and tries > 0:
            candidate = kept[:place] + kept[place + size :]
            tries -= 1
            if candidate and _kind(fails(candidate)) == same:
                kept, shorter = candidate, True
            else:
                place += size
        if size > 1 or not shorter:
            size //= 2
    return kept


def _kind(fault: str) -> str:
    return fault.partition("\n")[0]
