"""Plays plans with a defect planted, until one of them ends badly."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.defects import DEFECTS
from tests.soak import plans
from tests.soak.playing import play


@dataclass(frozen=True)
class Caught:
    """What became of one defect."""

    defect: str
    allowed: int
    """Seeds."""
    seed: int | None
    """The first one that saw it."""
    by: tuple[str, ...] = ()
    """All that saw it in that plan, and what each said."""
    honest: str = ""
    """What the product as it is does wrong in the plan of that seed: then nothing was caught."""


def hunt(number: int) -> Caught:
    """Play the plans of seed 1, 2, 3 … with that defect of DEFECTS; and the one that saw it without."""
    defect = DEFECTS[number]
    for seed in range(1, defect.seeds + 1):
        plan = plans.draw(seed, faults=defect.faults)
        with defect.apply():
            outcome = play(plan)
        if outcome.problems:
            honest = play(plan).problems
            by, told = tuple(outcome.problems), honest[0] if honest else ""
            return Caught(defect.name, defect.seeds, seed, by, told)
    return Caught(defect.name, defect.seeds, None)
