"""The figures of many runs."""

from __future__ import annotations

from collections import Counter

from tests.soak.outcome import Outcome


class Report:
    def __init__(self) -> None:
        self.failed: list[int] = []
        """Seeds."""
        self._played = 0
        self._wired = 0
        self._seconds = 0.0
        self._transitions = 0
        self._restarts = 0
        self._faults: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._played

    def add(self, outcome: Outcome) -> None:
        self._played += 1
        self._wired += outcome.plan.over == "wire"
        self._seconds += outcome.seconds
        self._transitions += outcome.transitions
        self._restarts += outcome.restarts
        self._faults += outcome.faults
        if outcome.problems:
            self.failed.append(outcome.plan.seed)

    def text(self, *, wall: float) -> str:
        hours = self._seconds / 3600
        lines = [
            f"runs              {self._played}, failed {len(self.failed)}",
            f"over HTTP's bytes {self._wired}",
            f"simulated         {hours:.1f} hours",
            f"node transitions  {self._transitions}",
            f"containerd starts {self._restarts}",
            f"wall              {wall:.0f} s",
            f"faults            {sum(self._faults.values())}",
            *(f"  {count:7d} {name}" for name, count in self._faults.most_common()),
        ]
        if self.failed:
            lines.append(f"failed seeds: {' '.join(map(str, sorted(self.failed)))}")
        return "\n".join(lines)
