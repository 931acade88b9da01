"""`HostConfig`: the one door to containerd's configuration of a host (design section 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from reconciler.api.clock import Clock, SystemClock
from reconciler.api.noderuntime import RevisionData
from reconciler.cri.api import Cri
from reconciler.hostconfig.model import Findings, Outcome, Timing
from reconciler.systemd.api import Systemd

Fence = Callable[[], Awaitable[None]]
"""Awaited right before the first write; raises to abort with nothing changed."""


class HostConfig:
    """Changes containerd's configuration below `root` and proves that the result serves.

    `config_path` is the daemon's `--config` ("" for the default, which may be missing), `version` the
    daemon's version (`1.6.20`). Every path is the host's; links and imports are resolved inside `root`.
    Without `systemd` nothing is restarted; without `cri` nothing is asked of the daemon. At most one
    change at a time per host: a lock below `state_dir` is held over edit, restart and proof.
    """

    def __init__(
        self,
        root: Path,
        config_path: str = "",
        version: str = "",
        state_dir: str = "/var/lib/runtime-reconciler",
        *,
        systemd: Systemd | None = None,
        cri: Cri | None = None,
        unit: str = "containerd.service",
        clock: Clock | None = None,
        timing: Timing | None = None,
        binary: str = "",
    ) -> None:
        """`binary` (the caller's path) is asked to cross-check a candidate by `config dump`, when given."""
        self._clock = clock or SystemClock()
        raise NotImplementedError

    def plan(self, name: str, data: RevisionData) -> Outcome:
        """What `apply` would do; writes nothing. Blocking file reads: call it in a thread."""
        raise NotImplementedError

    async def apply(self, name: str, uid: str, data: RevisionData, *, fence: Fence | None = None) -> Outcome:
        """Write the handlers of `data` for runtime `name`, restart once, prove; undo when proven bad.

        `changed`/`unchanged`: CRI serves the handlers. `refused`: nothing changed, `reason` says why
        (Busy, InvalidToml, PendingForeignChange, HandlerConflict, …): may be tried again.
        `broken` with `undone`: tried, proven bad, taken back (VerifyFailed). Exceptions of `fence` pass through.
        Cancellation: finishes or undoes first, then raises CancelledError.
        """
        raise NotImplementedError

    async def remove(self, name: str, *, fence: Fence | None = None) -> Outcome:
        """Take out what was added for `name`; `unchanged` when there is nothing. Otherwise as `apply`."""
        raise NotImplementedError

    async def recover(self) -> list[Outcome]:
        """Finish or roll back what a killed process left in the journal; call it at start. Also done before each change."""
        raise NotImplementedError

    def journal(self) -> dict[str, str]:
        """Runtimes that the host holds something of: name → UID of the NodeRuntime that asked for it."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """True between our stop of containerd and the proof (or undo): a planned outage."""
        raise NotImplementedError

    def check(self) -> Findings:
        """Would the files on disk start and serve CRI, and which handlers. Blocking file reads; writes nothing."""
        raise NotImplementedError

    async def repair(self) -> Outcome:
        """Mend what is known to be mendable (`Finding.repairable`); `unchanged` when there is nothing."""
        raise NotImplementedError
