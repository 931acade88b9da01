"""The tour is well only when every panel had data and the one alert went the whole way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tour.commands import Said
from tests.tour.prometheus import Answer
from tests.tour.record import Record

STUCK = ("NodeStuck", "runtime=kata")
OTHER = ("NoLeader", "")
FULL = Answer(expr="up", series=1, samples=3, last={"": 1.0})


class Played:
    """A Prometheus that goes through `states`, one for each look."""

    def __init__(self, states: Sequence[dict[tuple[str, str], str]]) -> None:
        self._states = iter(states)
        self.over = asyncio.Event()

    async def states(self) -> dict[tuple[str, str], str]:
        found = next(self._states, None)
        if found is None:
            self.over.set()
        return found or {}


async def followed(folder: Path, monkeypatch: pytest.MonkeyPatch, *states: dict[tuple[str, str], str]) -> Record:
    monkeypatch.setattr("tests.tour.record.POLL", 0.0)
    record = Record(folder)
    played: Any = Played([*states, {}])
    watching = asyncio.ensure_future(record.watch(played))
    async with asyncio.timeout(5):
        await played.over.wait()
    watching.cancel()
    record.panels({"fleet / nodes": [FULL]})
    return record


async def test_pending_firing_resolved_and_data_everywhere_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await followed(tmp_path, monkeypatch, {STUCK: "pending"}, {STUCK: "firing"})
    assert record.end("NodeStuck") == 0
    assert "| fleet / nodes | 1 | 3 |" in (tmp_path / "tour.md").read_text()


async def test_an_alert_that_only_was_pending_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await followed(tmp_path, monkeypatch, {STUCK: "pending"})
    assert record.end("NodeStuck") == 1
    assert "went pending → gone" in (tmp_path / "tour.md").read_text()


async def test_another_alert_that_fires_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = ({STUCK: "pending"}, {STUCK: "firing", OTHER: "firing"})
    record = await followed(tmp_path, monkeypatch, *states)
    assert record.end("NodeStuck") == 1
    assert "alert NoLeader fired, too" in (tmp_path / "tour.md").read_text()


async def test_a_panel_without_data_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await followed(tmp_path, monkeypatch, {STUCK: "pending"}, {STUCK: "firing"})
    record.panels({"fleet / nodes": [FULL, Answer(expr="down", series=0, samples=0, last={})]})
    assert record.end("NodeStuck") == 1
    assert "panel fleet / nodes has no data: down" in (tmp_path / "tour.md").read_text()


async def test_a_command_with_another_exit_status_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = await followed(tmp_path, monkeypatch, {STUCK: "pending"}, {STUCK: "firing"})
    record.said("stuck", Said(command="reconciler status", status=0, screen=""))
    assert record.end("NodeStuck") == 1
