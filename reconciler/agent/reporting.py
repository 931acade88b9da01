"""The agent's word to the controller: conditions and report, in one patch, written only when the truth changes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from reconciler.agent.deps import Deps
from reconciler.agent.probe import Probe
from reconciler.agent.work import Worker
from reconciler.api import names
from reconciler.api.clock import rfc3339
from reconciler.api.meta import Condition, Node, condition
from reconciler.api.node import Report, WorkResult, cut, decode_report, encode
from reconciler.barrier.barrier import RetryBarrier, State
from reconciler.kube.errors import ApiError, TransportError
from reconciler.kube.resources import NODES
from reconciler.kube.store import version_of
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds until a failed write is tried again, doubled up to RETRY_MAX, with jitter."""
RETRY_MAX = 30.0
HOLD = 30.0
"""Seconds for which the report waits for the answer of work in hand, so that both go in one write."""
FIRST = 2.0
"""Seconds for which the first report waits for CRI: at boot both begin together."""
BURST = 20
WINDOW = 20.0
"""At most BURST writes in WINDOW seconds: a containerd that flaps must not become a storm of writes."""

_SERVING = ("True", "Serving", "CRI answers Version and Status")
_CLOSED = {
    "UnitFailed": "the unit has failed; see its journal",
    "StoppedByAdmin": "the unit was stopped by a person; it is not started by us",
    "Hung": "containerd does not answer",
}


class Reporter:
    """`wake` when something may have changed; `run` writes."""

    def __init__(
        self,
        deps: Deps,
        barrier: RetryBarrier,
        probe: Probe,
        worker: Worker,
        *,
        ended: Callable[[], set[str]],
        contested: Callable[[], str],
    ) -> None:
        self._deps = deps
        self._barrier = barrier
        self._probe = probe
        self._worker = worker
        self._ended = ended
        self._contested = contested
        self._nudge = asyncio.Event()
        self._node: Node | None = None
        self._handlers: tuple[str, ...] = ()
        self._begun = 0.0
        self._writes: deque[float] = deque(maxlen=BURST)
        """Loop times of the last writes."""
        self.written = False
        """Whether the Node says what is true; the agent is ready from then on."""

    def see(self, node: Node) -> None:
        """The Node has changed; one from before our own write would make us write again."""
        held = self._node
        if held is None or held.metadata.uid != node.metadata.uid or version_of(held) < version_of(node):
            self._node = node
            self._nudge.set()

    def wake(self) -> None:
        self._nudge.set()

    async def run(self) -> None:
        delay = RETRY
        self._begun = asyncio.get_running_loop().time()
        while True:
            self._nudge.clear()
            try:
                held = self._held()
                if held is None:
                    await self._write()
                    delay = RETRY
                async with asyncio.timeout(held):
                    await self._nudge.wait()
            except TimeoutError:
                continue
            except (ApiError, TransportError) as error:
                log.warning("report not written", extra={"error": str(error)})
                await asyncio.sleep(delay * (0.5 + self._deps.rng.random() / 2))
                delay = min(delay * 2, RETRY_MAX)

    def _held(self) -> float | None:
        """Seconds that the report still has to wait: for the work in hand, for a daemon that is just coming up,
        or because too much was written of late."""
        now = asyncio.get_running_loop().time()
        if len(self._writes) == BURST and self._writes[0] + WINDOW > now:
            return self._writes[0] + WINDOW - now
        since, limit = self._worker.busy_since, HOLD
        if not self.written and self._barrier.state is not State.OPEN:
            since, limit = self._begun, FIRST
        if since is None or since + limit <= now:
            return None
        return since + limit - now

    async def _write(self) -> None:
        node = self._node
        if node is None or not self._probe.looked:
            return
        journal = await asyncio.to_thread(self._deps.host.journal)
        told = self._told(node)
        report = self._report(told, journal)
        conditions = [one for one in (self._serving(node), self._contest(node)) if one is not None]
        if report is None and not conditions:
            self.written = True
            return
        patch: dict[str, Any] = {}
        if conditions:
            patch["status"] = {"conditions": conditions}
        if report is not None:
            patch["metadata"] = {"annotations": {names.REPORT_ANNOTATION: encode(report)}}
        self._writes.append(asyncio.get_running_loop().time())
        answer = await self._deps.client.patch(
            NODES,
            node.metadata.name,
            patch,
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
            field_manager=names.AGENT_FIELD_MANAGER,
        )
        self._node = answer
        self.written = True

    @staticmethod
    def _told(node: Node) -> Report | None:
        text = node.metadata.annotations.get(names.REPORT_ANNOTATION, "")
        try:
            return decode_report(text) if text else None
        except msgspec.MsgspecError:
            return None

    def _report(self, told: Report | None, journal: dict[str, str]) -> Report | None:
        """The report that should be, or None when what was told still holds (answers to old work apart)."""
        if self._worker.busy and told is not None:
            return None
        status = self._probe.status
        if status is not None:
            self._handlers = tuple(sorted(status.handlers))
        elif not self._handlers and told is not None:
            self._handlers = told.handlers
        true = Report(
            boot=self._deps.boot,
            containerd=self._probe.version or (told.containerd if told else ""),
            handlers=self._handlers,
            work=self._worker.asked_for(),
            ended=tuple(sorted(self._ended())),
            journal=journal,
        )
        if told is None:
            return true
        same = (told.boot, told.containerd, told.handlers, told.journal) == (
            true.boot,
            true.containerd,
            true.handlers,
            true.journal,
        )
        news = set(true.ended) <= set(told.ended) and all(told.work.get(k) == v for k, v in true.work.items())
        held = all(k in true.work for k, v in told.work.items() if v.result is WorkResult.WAITING)
        return None if same and news and held else true

    def _serving(self, node: Node) -> dict[str, Any] | None:
        """The condition that should be, or None when it is so already, or during a restart of our own."""
        before = condition(node.status.conditions, names.SERVING_CONDITION)
        if self._barrier.state is not State.OPEN and self._deps.host.busy and before is not None:
            return None
        return self._news(before, names.SERVING_CONDITION, *self._words())

    def _contest(self, node: Node) -> dict[str, Any] | None:
        """The condition that should be, or None when it is so already; a Node without a contest has none."""
        before, what = condition(node.status.conditions, names.CONTESTED_CONDITION), self._contested()
        if what:
            return self._news(before, names.CONTESTED_CONDITION, "True", "PutBackInVain", what)
        if before is None:
            return None
        return self._news(before, names.CONTESTED_CONDITION, "False", "WouldStart", "the files on disk would start")

    def _news(
        self, before: Condition | None, kind: str, status: str, reason: str, message: str
    ) -> dict[str, Any] | None:
        """The condition for a patch, or None when `before` says the same."""
        if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
            return None
        changed = before is None or before.status != status
        moment = self._deps.clock.now() if changed else before.last_transition_time if before else None
        true = Condition(type=kind, status=status, reason=reason, message=message)
        body: dict[str, Any] = msgspec.to_builtins(true)
        body["lastTransitionTime"] = rfc3339(moment or self._deps.clock.now())
        body["lastHeartbeatTime"] = body["lastTransitionTime"]
        return body

    def _words(self) -> tuple[str, str, str]:
        if self._barrier.state is State.OPEN:
            return _SERVING
        if self._barrier.state is State.FAILED:
            why = self._probe.why_missing or "see its log"
            return "False", "CRIMissing", cut(f"containerd serves without its CRI plugin: {why}")
        reason = self._barrier.reason
        if reason in ("Starting",):
            return "Unknown", reason, "the agent has just begun to look"
        kept = reason if reason in _CLOSED else "NotServing"
        return "False", kept, _CLOSED.get(reason, "CRI does not answer")
