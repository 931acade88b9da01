"""Gets containerd back from systemd's `failed`, a bounded number of times, and never against a person's will."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from reconciler.agent.deps import Deps
from reconciler.agent.probe import Probe
from reconciler.systemd.api import SystemdError, UnitState

log = logging.getLogger(__name__)

MAX_STARTS = 3
WINDOW = 600.0
"""Seconds: at most MAX_STARTS starts by us in it; after that somebody must look."""
LOOK = 1.0
START_TIMEOUT = 120.0
SETTLE = 2.0
"""Seconds that a unit must have been failed: systemd itself may be about to try again."""


class Reviver:
    def __init__(self, deps: Deps, probe: Probe) -> None:
        self._deps = deps
        self._probe = probe
        self._starts: deque[float] = deque()
        self._failed_since: float | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            if self._due(self._probe.unit):
                await self._revive()

    def _due(self, unit: UnitState | None) -> bool:
        now = asyncio.get_running_loop().time()
        down = unit is not None and unit.active_state == "failed" and unit.restart not in ("no", "") and not unit.job
        if not down or self._deps.host.busy:
            self._failed_since = None
            return False
        if self._failed_since is None:
            self._failed_since = now
        return now - self._failed_since >= SETTLE

    async def _revive(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._starts and now - self._starts[0] > WINDOW:
            self._starts.popleft()
        if len(self._starts) >= MAX_STARTS:
            return
        findings = await asyncio.to_thread(self._deps.host.check)
        if not findings.loads:
            log.error(
                "containerd is down and its configuration would not start", extra={"finding": str(findings.fatal)}
            )
            return
        self._starts.append(now)
        self._failed_since = None
        try:
            await self._deps.systemd.reset_failed(self._deps.unit)
            await self._deps.systemd.start(self._deps.unit, timeout=START_TIMEOUT)
        except SystemdError as error:
            log.error("containerd not started", extra={"error": str(error)})
            return
        self._deps.metrics.restarted("revive")
        log.warning("containerd was failed and has been started again")
        self._probe.nudge()
