"""An agent for as long as containerd is the same one; after an upgrade of it a new agent looks at the host anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from reconciler.agent.service import Agent

log = logging.getLogger(__name__)

Begin = Callable[[Callable[[], None]], Awaitable[Agent]]
"""Looks at the host and makes an agent that calls the argument when containerd was replaced."""


class Lives:
    """`agent` is the present one, there after the first `begin`."""

    agent: Agent

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._replaced = asyncio.Event()

    async def begin(self) -> None:
        """Raises what the look at the host raises."""
        self._replaced = asyncio.Event()
        self.agent = await self._begin(self._replaced.set)

    async def run(self) -> None:
        """Until it is cancelled. A change under way is finished or undone before an agent ends."""
        while True:
            await self._one()
            log.warning("containerd is of another version than before: looking at the host anew")
            await self.begin()

    async def _one(self) -> None:
        running = asyncio.ensure_future(self.agent.run())
        replaced = asyncio.ensure_future(self._replaced.wait())
        try:
            await asyncio.wait({running, replaced}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            self.agent.stop()
        finally:
            for task in (running, replaced):
                task.cancel()
            await asyncio.gather(running, replaced, return_exceptions=True)
