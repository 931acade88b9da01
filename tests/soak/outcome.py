"""What became of a plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.soak.plans import Plan


@dataclass
class Outcome:
    """What became of a plan."""

    plan: Plan
    problems: list[str] = field(default_factory=list)
    """`invariant: what was seen`, in the order of time; empty when all is well."""
    timeline: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Simulated."""
    transitions: int = 0
    """Changes of a node's stage."""
    restarts: int = 0
    """Starts of containerd, the boots left out."""
    faults: Counter[str] = field(default_factory=Counter)
    """How often each really happened: a fault may find nothing to hit."""
    digest: str = ""
    """Of everything that happened: the same in each play of the plan."""

    @property
    def failure(self) -> str:
        """The name of the first problem, by which a smaller plan is known to fail in the same way."""
        return self.problems[0].partition(":")[0] if self.problems else ""
