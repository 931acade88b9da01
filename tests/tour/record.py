"""What the tour has seen, and its verdict: tour.md for eyes, JSON for programs."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.tour.commands import Said
from tests.tour.prometheus import Answer, Prometheus

POLL = 0.5
WAY = ("pending", "firing", "resolved")
WANTED = {"stuck": {4}, "mended": {0, 1}, "end": {0}}
"""Exit statuses of our commands, by when. 1 after the mending: the node went on before one could ask for it."""


@dataclass
class Record:
    folder: Path
    began: float = field(default_factory=time.monotonic)
    alert: dict[str, str] = field(default_factory=dict)
    """What the alert said when it fired."""
    _lines: list[str] = field(default_factory=list)
    _ways: dict[str, list[str]] = field(default_factory=dict)
    """By alert: the states that it went through."""
    _faults: list[str] = field(default_factory=list)
    _answers: dict[str, list[Answer]] = field(default_factory=dict)

    def note(self, line: str) -> None:
        """One line of the story, with the seconds since the beginning."""
        self._lines.append(f"{time.monotonic() - self.began:6.1f} s  {line}")
        print(self._lines[-1], flush=True)

    async def watch(self, prometheus: Prometheus) -> None:
        """Follow every alert until cancelled."""
        before: dict[tuple[str, str], str] = {}
        while True:
            now = await prometheus.states()
            for key in sorted(before.keys() | now.keys()):
                state = now.get(key, "resolved" if before.get(key) == "firing" else "gone")
                if state != before.get(key):
                    self._ways.setdefault(key[0], []).append(state)
                    self.note(f"alert {key[0]} ({key[1]}): {state}")
            before = now
            await asyncio.sleep(POLL)

    def state(self, alert: str) -> str:
        """Where the alert is; empty before it has begun."""
        return self._ways.get(alert, [""])[-1]

    def said(self, when: str, said: Said) -> None:
        """A command was run."""
        self.note(f"$ {said.command}: exit {said.status}")
        if said.status not in WANTED[when]:
            self._faults.append(f"{said.command} ({when}) ended with {said.status}: {said.text[-300:]}")

    def panels(self, answers: dict[str, list[Answer]]) -> None:
        """Every query of every panel must have data."""
        self._answers = answers
        for panel, found in answers.items():
            self._faults += [f"panel {panel} has no data: {a.expr}" for a in found if not a.samples]
        body = {panel: [asdict(answer) for answer in found] for panel, found in answers.items()}
        (self.folder / "panels.json").write_text(json.dumps(body, indent=1) + "\n")

    def end(self, alert: str) -> int:
        """Write everything down; exit status."""
        way = self._ways.get(alert, [])
        if tuple(way) != WAY:
            self._faults.append(f"alert {alert} went {' → '.join(way) or 'nowhere'}, not {' → '.join(WAY)}")
        others = sorted(name for name, states in self._ways.items() if "firing" in states and name != alert)
        self._faults += [f"alert {name} fired, too" for name in others]
        (self.folder / "alerts.json").write_text(json.dumps(self._ways, indent=1) + "\n")
        (self.folder / "tour.md").write_text(self._page(alert))
        print("\n".join([f"FAILED: {fault}" for fault in self._faults] or ["all well; see " + str(self.folder)]))
        return 1 if self._faults else 0

    def _page(self, alert: str) -> str:
        story = "\n".join(self._lines)
        told = "\n".join(f"* {key}: {value}" for key, value in self.alert.items())
        rows = "\n".join(
            f"| {panel} | {sum(a.series for a in found)} | {sum(a.samples for a in found)} |"
            for panel, found in self._answers.items()
        )
        faults = "\n".join(f"* {fault}" for fault in self._faults) or "None."
        return (
            f"# The tour\n\n```\n{story}\n```\n\n## {alert}\n\n{told}\n\n## Faults\n\n{faults}\n\n"
            f"## Panels\n\n| panel | series | samples |\n|---|---|---|\n{rows}\n"
        )
