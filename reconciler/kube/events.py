"""Kubernetes Events: bounded, aggregated, and never in the way of the caller."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from reconciler.api.clock import Clock
from reconciler.kube.client import Client
from reconciler.kube.errors import ApiError, NotFound, TransportError
from reconciler.kube.resources import EVENTS

log = logging.getLogger(__name__)

QUEUE_MAX = 512
"""Events waiting to be written; when full the newest are dropped and counted in the log."""
SERIES_WINDOW = 600.0
"""Seconds in which the same event is counted up instead of written anew."""
SERIES_EVERY = 60.0
"""Seconds between two writes of one series, after the first repeat: a loop must not become API load."""
SERIES_MAX = 1024
"""Series remembered; the oldest are forgotten."""
NOTE_MAX = 1024
"""Characters: the API server's limit."""
NAME_MAX = 200
"""Characters taken from the object's name: 253 are allowed, and a suffix follows."""


@dataclass
class _Series:
    name: str
    namespace: str
    count: int
    seen: float
    written: float


def regarding_node(name: str) -> dict[str, str]:
    """The Node `name`: kubelet, too, puts its name in place of the UID, and `kubectl describe` looks for that."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}


class Recorder:
    """`event` only queues; `run` writes. An Event that cannot be written is logged and lost."""

    def __init__(self, client: Client, component: str, clock: Clock, *, instance: str = "") -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._instance = instance or component
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE_MAX)
        self._series: dict[str, _Series] = {}

    def event(self, regarding: dict[str, str], kind: str, reason: str, note: str, action: str) -> None:
        """`kind` is Normal or Warning, `reason` CamelCase, `regarding` an object reference."""
        item = {"regarding": regarding, "type": kind, "reason": reason, "note": note[:NOTE_MAX], "action": action}
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            log.warning("event dropped", extra={"reason": reason})

    async def run(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                await self._write(item)
            except (ApiError, TransportError) as error:
                log.warning("event not written", extra={"reason": item["reason"], "error": str(error)})

    async def _write(self, item: dict[str, Any]) -> None:
        identity = repr(sorted(item["regarding"].items())) + item["type"] + item["reason"] + item["note"]
        key = hashlib.sha256(identity.encode()).hexdigest()[:16]
        now, moment = self._clock.monotonic(), self._clock.now().isoformat(timespec="microseconds")
        moment = moment.replace("+00:00", "Z")
        series = self._series.get(key)
        if series is not None and now - series.seen < SERIES_WINDOW and await self._repeat(series, now, moment):
            return
        namespace = item["regarding"].get("namespace") or "default"
        name = f"{item['regarding']['name'][:NAME_MAX]}.{key}.{int(self._clock.now().timestamp() * 1000):x}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": moment,
            "reportingController": f"runtime-reconciler.io/{self._component}"[:128],
            "reportingInstance": self._instance[:128],
            **item,
        }
        await self._client.create(EVENTS, body, namespace)
        self._series.pop(key, None)
        self._series[key] = _Series(name, namespace, 1, now, now)
        if len(self._series) > SERIES_MAX:
            del self._series[next(iter(self._series))]

    async def _repeat(self, series: _Series, now: float, moment: str) -> bool:
        """Count up; False when the Event has expired meanwhile, so that a new one is due."""
        series.count += 1
        series.seen = now
        if series.count > 2 and now - series.written < SERIES_EVERY:
            return True
        patch = {"series": {"count": series.count, "lastObservedTime": moment}}
        try:
            await self._client.patch(EVENTS, series.name, patch, series.namespace)
        except NotFound:
            return False
        series.written = now
        return True
