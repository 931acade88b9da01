"""Gets containerd back from systemd's `failed`, a bounded number of times, and never against a person's will."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from reconciler.agent.deps import Deps
from reconciler.agent.probe import Probe
from reconciler.hostconfig import HostConfigError
from reconciler.kube.events import Recorder, regarding_node
from reconciler.systemd.api import SystemdError, UnitState

log = logging.getLogger(__name__)

MAX_STARTS = 3
WINDOW = 600.0
"""Seconds: at most MAX_STARTS starts by us in it; after that somebody must look."""
LOOK = 1.0
"""Seconds between looks, only while it has failed: an agent at rest must not wake for nothing."""
START_TIMEOUT = 120.0
SETTLE = 2.0
"""Seconds that a unit must have been failed: systemd itself may be about to try again."""
GOING_DOWN = "stopping"
"""The manager's state while the machine is being shut down."""


class Reviver:
    """What it does, and why it does not, is told by Events on the Node."""

    def __init__(self, deps: Deps, probe: Probe, recorder: Recorder) -> None:
        self._deps = deps
        self._probe = probe
        self._recorder = recorder
        self._starts: deque[float] = deque()
        self._failed_since: float | None = None
        self._nudge = asyncio.Event()

    def nudge(self) -> None:
        """The unit may have failed."""
        self._nudge.set()

    async def run(self) -> None:
        while True:
            self._nudge.clear()
            if self._due(self._probe.unit):
                await self._revive()
            try:
                async with asyncio.timeout(LOOK if _fallen(self._probe.unit) else None):
                    await self._nudge.wait()
            except TimeoutError:
                continue

    def _due(self, unit: UnitState | None) -> bool:
        now = asyncio.get_running_loop().time()
        if not _fallen(unit) or self._deps.host.busy:
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
            self._tell("Warning", "ContainerdLeftFailed", f"started {MAX_STARTS} times in {WINDOW:.0f} s; left alone")
            self._failed_since = now
            self._deps.metrics.given_up("left-failed")
            return
        if (broken := await asyncio.to_thread(self._broken)) is not None:
            self._tell("Warning", "ContainerdConfigBroken", f"containerd is down and would not start: {broken}")
            self._failed_since = now
            self._deps.metrics.given_up("config-broken")
            return
        self._failed_since = None
        try:
            if await self._deps.systemd.system_state() == GOING_DOWN:
                return
            self._starts.append(now)
            result = self._probe.unit.result if self._probe.unit is not None else ""
            await self._deps.systemd.reset_failed(self._deps.unit)
            job = await self._deps.systemd.start(self._deps.unit, timeout=START_TIMEOUT)
        except SystemdError as error:
            log.error("containerd not started", extra={"error": str(error)})
            return
        self._deps.metrics.restarted("revive")
        self._deps.metrics.given_up("revived")
        self._tell("Warning", "ContainerdRevived", f"containerd had failed ({result}); reset and started: {job}")
        self._probe.nudge()

    def _broken(self) -> str | None:
        """Why the files on disk would not start, None when they would, or when that cannot be judged."""
        try:
            findings = self._deps.host.check()
        except HostConfigError:
            return None
        if findings.loads:
            return None
        return "its configuration is not valid" if findings.fatal is None else findings.fatal.message

    def _tell(self, kind: str, reason: str, note: str) -> None:
        log.warning("revive", extra={"reason": reason, "note": note})
        self._recorder.event(regarding_node(self._deps.node), kind, reason, note, "Revive")


def _fallen(unit: UnitState | None) -> bool:
    """Failed, though its unit says that it is to be restarted; not masked, and nobody is at it."""
    return (
        unit is not None
        and unit.active_state == "failed"
        and unit.restart not in ("no", "")
        and unit.unit_file_state != "masked"
        and not unit.job
    )
