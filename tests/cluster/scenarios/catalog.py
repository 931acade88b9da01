"""Which scenario has which number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster.lab import Lab, Verdict
from tests.cluster.scenarios import loops


@dataclass(frozen=True)
class Scenario:
    number: int
    title: str
    act: Callable[[Lab, Verdict, int], None]
    """The last argument is the number of loops that was asked for."""


SCENARIOS = (Scenario(1, "install and uninstall in a loop", loops.run),)
