"""What the controller knows of the switch that stops everything, and how it makes sure before something begins."""

from __future__ import annotations

import asyncio
from datetime import datetime

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.api.meta import ConfigMap
from reconciler.controller.world import Stopping, World
from reconciler.kube import stop
from reconciler.kube.client import Client
from reconciler.kube.resources import CONFIGMAPS
from reconciler.kube.store import Store
from reconciler.phases.facts import Stop

STOPS_MAX = 16
"""Stops remembered, for deadlines that stood still meanwhile."""


class Held(Exception):
    """Everything is stopped, or may be: what was about to begin does not."""


class StopSwitch:
    """Keeps `world.stopping` as the watch tells of the ConfigMap.

    A watch may have died without a word, so `confirm` asks the API server itself. One answer serves all that begins
    within `stop.BELIEVED` seconds: two requests a second at most, however many nodes there are.
    """

    def __init__(self, client: Client, store: Store[ConfigMap], world: World, clock: Clock) -> None:
        self._client = client
        self._store = store
        self._world = world
        self._clock = clock
        self._asked = float("-inf")
        """When the last answer that nothing is stopped was asked for; monotonic seconds."""
        self._asking = asyncio.Lock()

    async def confirm(self) -> None:
        """Nothing is stopped, and that is not old. Raises Held, ApiError, TransportError."""
        async with self._asking:
            if not self._world.stopping.words and self._clock.monotonic() - self._asked > stop.BELIEVED / 2:
                await self._ask()
        if self._world.stopping.words:
            raise Held(self._world.stopping.words)

    async def _ask(self) -> None:
        asked = self._clock.monotonic()
        try:
            found = await stop.ask(self._client, self._world.namespace)
        except stop.TooLate as error:  # a busy API server; what was about to begin is tried again soon
            raise Held(str(error)) from error
        if found is None:
            self._asked = asked
        elif self._store.apply_write(found):
            self.note(initial=False)

    def note(self, *, initial: bool) -> None:
        """The store, or the right to watch, has changed. `initial`: it may have been so for long."""
        found = self._store.get(names.STOP_NAME, self._world.namespace)
        spans, now = self._world.stopping.spans, self._clock.now()
        lasting = bool(spans) and spans[-1].end is None
        words = _words(found, self._world.blind.get(CONFIGMAPS.plural, ""))
        if words and not lasting:
            spans = (*spans, Stop(_begun(found, now) if initial else now))[-STOPS_MAX:]
        elif lasting and not words:
            spans = (*spans[:-1], Stop(spans[-1].begin, now))
        self._world.stopping = Stopping(words, found, spans)


def seen(found: ConfigMap | None, now: datetime) -> Stopping:
    """What one look at the ConfigMap tells, for those who only look."""
    if found is None:
        return Stopping()
    return Stopping(stop.words(found), found, (Stop(_begun(found, now)),))


def _words(found: ConfigMap | None, refused: str) -> str:
    if found is not None:
        return stop.words(found)
    return f"nobody can tell whether everything is stopped: {refused}" if refused else ""


def _begun(found: ConfigMap | None, now: datetime) -> datetime:
    """Believed unless it is to come: it is the API server's clock."""
    created = None if found is None else found.metadata.creation_timestamp
    return now if created is None else min(created, now)
