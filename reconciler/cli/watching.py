"""`--watch`: show it again whenever something has changed, until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress

import msgspec
from rich.console import RenderableType
from rich.live import Live

from reconciler.api.clock import SystemClock
from reconciler.api.overview import Explanation, NodeRow, Overview
from reconciler.cli.output import Format, console, document
from reconciler.cli.snapshot import read, watched
from reconciler.controller.sentences import at
from reconciler.controller.world import World
from reconciler.kube.client import Client

PAUSE = 0.5
"""Seconds between two looks, at least."""
STILL = 5.0
"""Seconds until the next look when nothing has changed: a deadline may have passed."""


async def watch(
    client: Client,
    namespace: str,
    form: Format,
    *,
    shown: Callable[[World, Overview], RenderableType],
    told: Callable[[World, Overview], Overview | Explanation],
    rows: Callable[[Overview], list[NodeRow]],
) -> None:
    """`shown` on a terminal, a line for each changed one of `rows` in a pipe, `told` for programs.

    Ends by cancellation only. Raises Refused, ApiError, TransportError.
    """
    live = form is Format.TEXT and sys.stdout.isatty()
    lines = _Lines()
    screen = Live(console=console(), auto_refresh=False, screen=live) if live else None
    async with watched(client, namespace) as (world, changed):
        last: Overview | Explanation | None = None
        with screen or nullcontext():
            while True:
                changed.clear()
                whole = read(world, SystemClock().now())
                if screen is not None:
                    screen.update(shown(world, whole), refresh=True)
                elif form is Format.TEXT:
                    _print("".join(lines.of(rows(whole))))
                elif last is None or told(world, whole) != msgspec.structs.replace(last, time=whole.time):
                    last = told(world, whole)
                    _print(document(last, form))
                await asyncio.sleep(PAUSE)
                with suppress(TimeoutError):
                    async with asyncio.timeout(STILL):
                        await changed.wait()


class _Lines:
    """One line for each row that is another one than before."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], NodeRow] = {}

    def of(self, rows: list[NodeRow]) -> Iterator[str]:
        now = {(row.runtime, row.node): row for row in rows}
        moment = at(SystemClock().now())
        for key in self._before.keys() - now.keys():
            yield f"{moment}  {key[0]}  {key[1]}  absent\n"
        for key, row in now.items():
            if self._before.get(key) != row:
                yield f"{moment}  {row.runtime}  {row.node}  {row.stage}  {row.verdict}  {row.waits_for}\n"
        self._before = now


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
