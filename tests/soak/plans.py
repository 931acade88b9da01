"""What one run is: a cluster's shape, and a list of what goes wrong in it and when. All of it follows from a seed.

A plan is data: it can be printed, kept as a file, made smaller, and played again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from reconciler.sim.faults import FAULTS

FAULTY_SECONDS = (120.0, 1200.0)
"""Least and most simulated seconds in which faults begin."""
STEPS = (3, 60)
"""Least and most faults of one run."""
KINDS = 12
"""Most kinds of faults in one run: few kinds often bring out what a little of everything does not."""

WIRED = 0.125
"""Part of the plans in which HTTP's bytes go over a wire, beside those that cut one: each costs half as much again."""


class Step(msgspec.Struct, frozen=True):
    """One fault."""

    at: float
    """Seconds after the cluster is up."""
    fault: str
    """Name in FAULTS."""
    seed: int
    """Of the generator that decides what it hits and how."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run."""

    seed: int
    """Of everything that is left to chance in the cluster itself, and of the specs."""
    nodes: int
    controllers: int
    runtimes: tuple[str, ...]
    """Names of the NodeRuntimes that are there from the beginning."""
    seconds: float
    """From the first moment until no fault begins any more."""
    steps: tuple[Step, ...]
    over: Literal["memory", "wire"] = "memory"
    """How clients reach the API server: by calls, or by HTTP's bytes, which break at any of them."""


def draw(seed: int, *, faults: Iterable[str] = FAULTS) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"plan/{seed}")
    known = sorted(faults)
    kinds = rng.sample(known, min(len(known), rng.randint(1, KINDS)))
    seconds = round(rng.uniform(*FAULTY_SECONDS), 1)
    number = rng.randint(*STEPS)
    wired = "wire-cut" in kinds or random.Random(f"over/{seed}").random() < WIRED
    moments = sorted(round(rng.uniform(0, seconds), 2) for _ in range(number))
    return Plan(
        seed=seed,
        nodes=rng.choice((1, 2, 2, 3, 3, 4, 5)),
        controllers=rng.choice((1, 2, 2, 3)),
        runtimes=("kata",) if rng.random() < 0.6 else ("kata", "wasm"),
        seconds=seconds,
        steps=tuple(Step(at, rng.choice(kinds), rng.getrandbits(32)) for at in moments),
        over="wire" if wired else "memory",
    )


def read(path: Path) -> Plan:
    """A plan from a file that `text` made. Raises OSError, and msgspec.MsgspecError that says what is wrong."""
    return msgspec.json.decode(path.read_bytes(), type=Plan)


def text(plan: Plan) -> str:
    """JSON, one step to a line."""
    head = {field: getattr(plan, field) for field in plan.__struct_fields__ if field != "steps"}
    lines = ",\n  ".join(msgspec.json.encode(step).decode() for step in plan.steps)
    return msgspec.json.encode(head).decode()[:-1] + f',"steps":[\n  {lines}\n]}}\n'
