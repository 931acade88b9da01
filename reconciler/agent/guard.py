"""Around payloads that edit containerd's configuration by themselves (design section 6, the guard).

While a phase pod is on the node, the last proven set of files is kept; when what somebody leaves behind would not
start, it takes the place of that, after 2 s of quiet and with nobody writing, at once when containerd is down.
Edits that load are respected. What is put back and broken again and again is contested: hands off, until the files
would start again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from reconciler.agent.deps import Deps
from reconciler.agent.kills import phase_pod
from reconciler.agent.probe import Probe
from reconciler.api import names
from reconciler.api.meta import Node, Pod, condition
from reconciler.barrier.barrier import RetryBarrier, State
from reconciler.hostconfig import Code, HostConfigError, Outcome, Verdict
from reconciler.hostconfig.rescue import Signature
from reconciler.kube.events import Recorder, regarding_node
from reconciler.kube.store import Store
from reconciler.systemd.api import UnitState

log = logging.getLogger(__name__)

TICK = 0.5
"""Seconds between looks at the files, in a window only."""
QUIET = 2.0
"""Seconds without a change before files that would not start are judged: an editor may write more than once."""
CALM = 5.0
"""Seconds between looks, outside of a window, whether what is contested has been mended."""
LINGER = 10.0
"""Seconds that the window stays open after the last phase pod: what it left running may still write."""
START_LIMIT = "start-limit-hit"
"""Says nothing about the files: only starts that succeeded make it."""


class Guard:
    """`run` waits for pods of ours; what it does is told by Events on the Node."""

    def __init__(
        self,
        deps: Deps,
        barrier: RetryBarrier,
        probe: Probe,
        pods: Store[Pod],
        recorder: Recorder,
        *,
        changing: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        """`changing()`: a change of our own is under way, which has an undo of its own. `changed`: `contested` has."""
        self._deps, self._barrier, self._probe, self._pods = deps, barrier, probe, pods
        self._recorder, self._changing, self._changed = recorder, changing, changed
        self._nudge = asyncio.Event()
        self._open = True
        """Also at the start: a predecessor may have left what it had proven."""
        self._last_pod = float("-inf")
        self._during = ""
        """UID of the youngest phase pod in the window."""
        self.contested = ""
        """What is contested, in words; empty: nothing."""
        self._heard = False
        self._seen: tuple[Signature, str] | None = None
        """The files, and the invocation of containerd that they were seen with."""
        self._since = 0.0
        self._kept = self._judged = False

    def nudge(self) -> None:
        """A pod has changed."""
        self._nudge.set()

    def see(self, node: Node) -> None:
        """The Node has changed. The first one tells what a predecessor has left contested."""
        told = condition(node.status.conditions, names.CONTESTED_CONDITION)
        if not self._heard and told is not None and told.status == "True":
            self.contested = told.message
            self._nudge.set()
        self._heard = True

    async def run(self) -> None:
        while True:
            self._nudge.clear()
            try:
                await self._turn()
            except (HostConfigError, OSError) as error:
                log.warning("the configuration is not guarded now", extra={"error": str(error)})
            try:
                async with asyncio.timeout(TICK if self._open else CALM if self.contested else None):
                    await self._nudge.wait()
            except TimeoutError:
                continue

    async def _turn(self) -> None:
        now = asyncio.get_running_loop().time()
        pods = [pod for pod in self._pods.list() if phase_pod(pod)]
        if pods:
            self._last_pod, self._during = now, max(pods, key=_age).metadata.uid
        if now - self._last_pod <= LINGER:
            self._open = True
            await self._look(now)
        elif self._open:
            await self._deps.host.rescue.forget()
            self._open, self._seen, self._during = False, None, ""
        if self.contested and not self._down(self._probe.unit) and await self._deps.host.rescue.loads():
            self._contest("")

    async def _look(self, now: float) -> None:
        if self._changing():
            self._seen = None
            return
        unit = self._probe.unit
        seen = (await self._deps.host.rescue.signature(), "" if unit is None else unit.invocation_id)
        if seen != self._seen:
            self._seen, self._since, self._kept, self._judged = seen, now, False, False
        down = self._down(unit)
        if self._judged or (self._kept and not down):
            return
        if not down and await self._deps.host.rescue.remember():
            self._kept = True
        elif down or now - self._since >= QUIET:
            self._told(await self._deps.host.rescue.put_back(failed=down, during=self._during))

    def _down(self, unit: UnitState | None) -> bool:
        """containerd has tried its configuration and does not serve with it."""
        failed = unit is not None and (unit.active_state == "failed" or unit.sub_state == "auto-restart")
        tried = unit is not None and unit.result != START_LIMIT
        return (failed and tried) or self._barrier.state is State.FAILED

    def _told(self, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.REFUSED and outcome.reason is Code.BUSY:
            return  # somebody writes; soon again
        self._judged = True
        if outcome.verdict is Verdict.UNCHANGED or outcome.reason is Code.NOT_OURS:
            return
        reason = self._deps.count("put back", outcome, "guard")
        if outcome.restarted:
            self._probe.nudge()
        log.warning("guard", extra={"outcome": outcome.verdict.value, "reason": reason, "told": outcome.message})
        files = ", ".join(change.path for change in outcome.files)
        if outcome.reason is Code.CONTESTED:
            self._tell("ConfigContested", outcome.message)
            self._contest(outcome.message)
        elif outcome.verdict is Verdict.REFUSED:
            self._tell("ConfigNotPutBack", f"the configuration would not start: {outcome.message}")
        else:
            self._tell("ConfigPutBack", f"put back {files}; the rejected bytes are kept: {outcome.message}")

    def _contest(self, what: str) -> None:
        if self.contested != what:
            self.contested = what
            self._changed()

    def _tell(self, reason: str, note: str) -> None:
        self._recorder.event(regarding_node(self._deps.node), "Warning", reason, note, "Guard")


def _age(pod: Pod) -> str:
    """The time of creation, and the UID between pods of one second."""
    made = pod.metadata.creation_timestamp
    return f"{'' if made is None else made.isoformat()} {pod.metadata.uid}"
