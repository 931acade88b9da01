"""After an upgrade of containerd the host is looked at anew, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from reconciler.agent.lives import Lives


class Agent:
    """Runs until it is cancelled, or until it fails."""

    def __init__(self, told: list[str], name: str) -> None:
        self._told, self._name = told, name
        self.fail = asyncio.Event()

    def stop(self) -> None:
        self._told.append(f"{self._name} stops")

    async def run(self) -> None:
        self._told.append(f"{self._name} runs")
        try:
            await self.fail.wait()
            raise RuntimeError("ended by itself")
        finally:
            self._told.append(f"{self._name} ended")


class Host:
    """Makes agents; `replace` is what the last of them was given to call."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.replace: Callable[[], None] = lambda: None
        self.begun = asyncio.Event()
        self._count = 0

    async def begin(self, replaced: Callable[[], None]) -> Any:
        self._count += 1
        self.replace = replaced
        self.begun.set()
        return Agent(self.told, str(self._count))


async def test_a_replaced_containerd_ends_one_agent_before_the_next_begins() -> None:
    host = Host()
    lives = Lives(host.begin)
    await lives.begin()
    task = asyncio.create_task(lives.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    host.begun.clear()
    host.replace()
    await host.begun.wait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert host.told == ["1 runs", "1 stops", "1 ended", "2 runs", "2 ended"]


async def test_an_agent_that_fails_is_the_end() -> None:
    host = Host()
    lives = Lives(host.begin)
    await lives.begin()
    lives.agent.fail.set()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="ended by itself"):
        await lives.run()
    assert host.told == ["1 runs", "1 ended"]
