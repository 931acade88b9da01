"""configure and unconfigure: what the Node's states ask of this agent, one piece at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from reconciler.agent.deps import Deps
from reconciler.agent.gate import CALL, STOP_UNKNOWN, STOPPED, Gate, Stale, Wait, work_key
from reconciler.agent.probe import Probe
from reconciler.agent.strays import alive
from reconciler.api import names
from reconciler.api.meta import Node
from reconciler.api.node import (
    AGENT_STAGES,
    NodeState,
    Stage,
    WorkReport,
    WorkResult,
    cut,
    decode_report,
    decode_state,
)
from reconciler.api.noderuntime import RevisionData, WrittenBy, revision_name
from reconciler.barrier.barrier import RetryBarrier
from reconciler.cri.api import ContainerState, CriError
from reconciler.hostconfig import HostConfigError, Outcome
from reconciler.kube.errors import ApiError, NotFound, TransportError
from reconciler.kube.events import Recorder, regarding_node
from reconciler.kube.resources import CONTROLLERREVISIONS

log = logging.getLogger(__name__)

RETRY = 1.0
"""Seconds until work that waits is tried again, when nothing is heard before; doubled up to RETRY_MAX."""
RETRY_MAX = 30.0
PATIENCE = 2.0
"""Seconds that work may wait before the report says so: most causes go sooner, and each word costs a write."""
STOP_POLL = 10.0
"""Seconds, less up to half of it, until one asks again whether everything is still stopped."""


class Worker:
    """Does the work of one node. `answers` is what the report says of it."""

    def __init__(
        self,
        deps: Deps,
        barrier: RetryBarrier,
        probe: Probe,
        changed: Callable[[], None],
        *,
        over: Callable[[str], bool],
        to_come: Callable[[str], bool],
        recorder: Recorder,
    ) -> None:
        """`over(uid)`: nothing of that pod can run any more, known without asking CRI. `to_come(uid)`: a pod of which
        CRI shows nothing may still begin."""
        self._deps = deps
        self._over = over
        self._to_come = to_come
        self._gate = Gate(deps, stopping=lambda: self.stopping)
        self._recorder = recorder
        self._barrier = barrier
        self._probe = probe
        self._changed = changed
        self._nudge = asyncio.Event()
        self._node: Node | None = None
        self.answers: dict[str, WorkReport] = {}
        self.stopping = False
        """Nothing new is begun."""
        self.busy_since: float | None = None
        """Loop time since when one piece is in hand."""
        self._stopped = False
        """Work waits because everything is stopped, or may be."""
        self._waiting: dict[str, tuple[NodeState, float]] = {}
        """By runtime: the state whose work waits, and since when."""
        self.busy = False
        """At work: what the host looks like in between is nobody's news."""

    def see(self, node: Node) -> None:
        """The Node has changed. The first one tells what was answered before this process began."""
        if self._node is None:
            self.answers = _told(node)
        self._node = node
        self._nudge.set()

    def nudge(self) -> None:
        """The host has changed: try again what waits."""
        self._nudge.set()

    def asked_for(self) -> dict[str, WorkReport]:
        """Answers for runtimes that the Node still has a state of."""
        held = {} if self._node is None else self._node.metadata.annotations
        return {k: v for k, v in self.answers.items() if names.state_annotation(k) in held}

    async def run(self) -> None:
        delay = RETRY
        while True:
            self._nudge.clear()
            self._stopped = False
            self._let_go()
            waiting = [await self._in_hand(runtime, state) for runtime, state in [*self._asked()]]
            delay = min(delay * 2, RETRY_MAX) if any(waiting) else RETRY
            pause = STOP_POLL * (1 - self._deps.rng.random() / 2) if self._stopped else delay
            try:
                async with asyncio.timeout(pause if any(waiting) else None):
                    await self._nudge.wait()
            except TimeoutError:
                continue

    def _let_go(self) -> None:
        """Nothing is in hand now: work that waited and is not asked for any more will not be begun."""
        states = dict(self._states())
        waits = {k for k, answer in self.answers.items() if answer.result is WorkResult.WAITING}
        void = [k for k in waits if k not in states or not _same(self.answers[k], states[k])]
        for runtime in void:
            del self.answers[runtime]
        if void:
            self._changed()

    def _asked(self) -> Iterable[tuple[str, NodeState]]:
        """Work that has no final answer yet."""
        if self.stopping:
            return
        for runtime, state in self._states():
            if state.stage in AGENT_STAGES and not self._answered(runtime, state):
                yield runtime, state

    def _states(self) -> Iterable[tuple[str, NodeState]]:
        annotations = {} if self._node is None else self._node.metadata.annotations
        for key, text in sorted(annotations.items()):
            if not key.startswith(names.STATE_ANNOTATION_PREFIX):
                continue
            try:
                yield key.removeprefix(names.STATE_ANNOTATION_PREFIX), decode_state(text)
            except msgspec.MsgspecError:
                continue  # the controller reports it

    def _answered(self, runtime: str, state: NodeState) -> bool:
        answer = self.answers.get(runtime)
        return answer is not None and answer.result is not WorkResult.WAITING and _same(answer, state)

    async def _in_hand(self, runtime: str, state: NodeState) -> bool:
        if self.stopping:
            return False
        self.busy_since = asyncio.get_running_loop().time()
        try:
            return await self._one(runtime, state)
        finally:
            self.busy_since = None
            self._changed()

    async def _one(self, runtime: str, state: NodeState) -> bool:
        """Whether it still waits."""
        self.busy = True
        try:
            answer = await self._do(runtime, state)
        except Wait as wait:
            self._stopped = self._stopped or wait.reason in (STOPPED, STOP_UNKNOWN)
            answer = _answer(state, WorkResult.WAITING, wait.reason, wait.message)
        except Stale:
            return False
        except CriError as error:
            answer = _answer(state, WorkResult.WAITING, "ContainerdNotServing", str(error))
        except (ApiError, TransportError) as error:
            log.warning("work waits for the API server", extra={"runtime": runtime, "error": str(error)})
            return True
        except HostConfigError as error:
            answer = _answer(state, WorkResult.WAITING, "HostConfig", str(error))
        finally:
            self.busy = False
        if answer.result is not WorkResult.WAITING:
            self._waiting.pop(runtime, None)
            self.answers[runtime] = answer
            return False
        if self._patient(runtime, state):
            self.answers[runtime] = answer
        return True

    def _patient(self, runtime: str, state: NodeState) -> bool:
        """Whether this work has waited for long enough to say so."""
        now = asyncio.get_running_loop().time()
        what, since = self._waiting.get(runtime, (state, now))
        if work_key(what) != work_key(state):
            since = now
        self._waiting[runtime] = (state, since)
        return now - since >= PATIENCE

    async def _do(self, runtime: str, state: NodeState) -> WorkReport:
        if state.stage is Stage.CONFIGURE:
            return await self._configure(runtime, state)
        return await self._unconfigure(runtime, state)

    async def _configure(self, runtime: str, state: NodeState) -> WorkReport:
        data = await self._revision(runtime, state)
        await self._nothing_runs(state.pod)
        writes = any(h.written_by is WrittenBy.AGENT for h in data.handlers) or bool(data.snapshotters)
        if writes or runtime in await asyncio.to_thread(self._deps.host.journal):
            going = await self._going(runtime, state, data)
            await self._gate.nobody_uses(going, state.stage)
            await self._gate.unstopped()
            fence = self._gate.fence(runtime, state, going)
            if writes:
                outcome = await self._deps.host.apply(runtime, state.uid, data, fence=fence)
            else:  # what an older revision wrote
                outcome = await self._deps.host.remove(runtime, fence=fence)
            self._done("configure", outcome)
            if not outcome.good:
                return _refused(state, outcome)
        await self._probe.look()
        status = self._probe.status
        if status is None:
            raise Wait("ContainerdNotServing", self._barrier.reason)
        missing = sorted({h.name for h in data.handlers} - set(status.handlers))
        if missing:
            raise Wait(
                "HandlerMissing", f"CRI does not serve {', '.join(missing)}; it serves {', '.join(status.handlers)}"
            )
        return _answer(state, WorkResult.DONE)

    async def _unconfigure(self, runtime: str, state: NodeState) -> WorkReport:
        try:
            await self._nothing_runs(state.pod)
        except CriError:
            if not self._over(state.pod):  # else it must work while CRI is down
                raise
        handlers = await self._guarded(runtime, state)
        await self._gate.nobody_uses(handlers, state.stage)
        await self._gate.unstopped()
        outcome = await self._deps.host.remove(runtime, fence=self._gate.fence(runtime, state, handlers))
        self._done("unconfigure", outcome)
        if not outcome.good:
            return _refused(state, outcome)
        await self._probe.look()
        return _answer(state, WorkResult.DONE)

    async def _revision(self, runtime: str, state: NodeState) -> RevisionData:
        name = revision_name(runtime, state.target)
        try:
            kept = await self._deps.client.get(CONTROLLERREVISIONS, name, self._deps.namespace)
        except NotFound as error:
            raise Wait("RevisionMissing", f"ControllerRevision {name} is not there") from error
        return msgspec.json.decode(bytes(kept.data), type=RevisionData)

    async def _nothing_runs(self, uid: str) -> None:
        """The payload's pod of the step before must be over in CRI; a finished one's sandbox is stopped here. Nor may
        another payload run: one whose pod somebody deleted by force is named nowhere else."""
        try:
            containers = await self._deps.cri.containers(timeout=CALL)
            sandboxes = await self._deps.cri.sandboxes(timeout=CALL)
        except CriError:
            if uid:
                raise
            return  # nothing is known of, and a change may be what brings CRI back
        for other, sandbox in alive(containers, sandboxes).items():
            if other != uid:
                raise Wait("PodStillRunning", f"a container of pod {sandbox.name} ({other}) still runs")
        if not uid:
            return
        own = [c.state for c in containers if c.pod_uid == uid]
        if ContainerState.RUNNING in own or ContainerState.CREATED in own:
            raise Wait("PodStillRunning", f"a container of pod {uid} still runs")
        if not own and self._to_come(uid):
            raise Wait("PodStillRunning", f"pod {uid} has no container yet and may get one")
        for sandbox in sandboxes:
            if sandbox.pod_uid == uid and sandbox.ready:
                await self._deps.cri.stop_sandbox(sandbox.id, timeout=30)

    async def _going(self, runtime: str, state: NodeState, data: RevisionData) -> frozenset[str]:
        """Handlers of ours that this revision lacks, and that no sandbox may use when they go; none by force."""
        if state.forced:
            return frozenset()
        written = await asyncio.to_thread(self._deps.host.written, runtime)
        return written - {handler.name for handler in data.handlers}

    async def _guarded(self, runtime: str, state: NodeState) -> frozenset[str]:
        """Handlers that no sandbox may use when they go: what we wrote, and what the payload of this revision did, of
        which only the revision tells; none when a person forces it."""
        if state.forced:
            return frozenset()
        written = await asyncio.to_thread(self._deps.host.written, runtime)
        try:
            data = await self._revision(runtime, state)
        except Wait:
            return written
        return written | {handler.name for handler in data.handlers}

    def _done(self, operation: str, outcome: Outcome) -> None:
        """Counted, and told of when all is well but something kept containerd from starting at once."""
        self._deps.count(operation, outcome, "agent")
        if outcome.good and outcome.restarted and outcome.message:
            note = f"{operation}: containerd was away for {outcome.outage:.1f} s: {outcome.message}"
            self._recorder.event(regarding_node(self._deps.node), "Warning", "ContainerdStartSlow", note, "Restart")


def _told(node: Node) -> dict[str, WorkReport]:
    """Answers that the Node holds already."""
    try:
        return dict(decode_report(node.metadata.annotations.get(names.REPORT_ANNOTATION, "")).work)
    except msgspec.MsgspecError:
        return {}


def _refused(state: NodeState, outcome: Outcome) -> WorkReport:
    reason = outcome.reason.value if outcome.reason is not None else "HostConfig"
    result = WorkResult.FAILED if outcome.undone else WorkResult.WAITING
    return _answer(state, result, reason, outcome.message)


def _answer(state: NodeState, result: WorkResult, reason: str = "", message: str = "") -> WorkReport:
    return WorkReport(
        uid=state.uid,
        stage=state.stage,
        revision=state.target,
        attempt=state.attempt,
        result=result,
        reason=reason,
        message=cut(message),
    )


def _same(answer: WorkReport, state: NodeState) -> bool:
    return (answer.uid, answer.stage, answer.revision, answer.attempt) == work_key(state)
