"""What a stage advances by, and how often it is tried."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.api import names
from reconciler.api.node import AGENT_STAGES, POD_STAGES, NodeState, Stage, WorkResult, decode_report
from reconciler.cri.api import ContainerState
from reconciler.phases.moving import MAX_ATTEMPTS
from reconciler.sim import kinds
from reconciler.sim.invariants.base import (
    Bounded,
    Invariant,
    Step,
    Surroundings,
    Write,
    is_phase_pod,
    labels,
    marks,
    moves,
    step_of,
)
from reconciler.sim.kinds import Object
from reconciler.sim.node import SimNode
from reconciler.sim.runtime import Process

INSTALLS = (Stage.PRE_INSTALL, Stage.INSTALL)
FORWARD = {
    Stage.PRE_INSTALL: (Stage.INSTALL, Stage.CONFIGURE),
    Stage.INSTALL: (Stage.CONFIGURE,),
    Stage.CONFIGURE: (Stage.VERIFY, Stage.READY),
    Stage.UNCONFIGURE: (Stage.UNINSTALL, Stage.POST_UNINSTALL, Stage.ABSENT, Stage.FAILED),
    Stage.UNINSTALL: (Stage.POST_UNINSTALL, Stage.ABSENT, Stage.FAILED),
}
"""Stage → what follows when it is done. POST_UNINSTALL may be entered only to wait, and so is not asked."""


class Evidence(Invariant):
    """A stage advances only by evidence of the present attempt.

    A pod stage: a payload of this node, NodeRuntime, stage, revision and attempt has ended with 0 in its shim, or the
    Node carries a done label that was set after this attempt's pod was made. An agent's stage: its report on the Node
    answers this very stage, revision and attempt with Done. A stage of which the revision has no phase has no actor
    and needs none. Nor does one whose revision is gone with its NodeRuntime; one that somebody deleted alone is no
    excuse.
    """

    name = "evidence"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._pods: Bounded[str, Step] = Bounded(20_000)
        """UID of a phase pod → its work."""
        self._made: Bounded[Step, frozenset[tuple[str, str]]] = Bounded(20_000)
        """Work → the Node's labels when its last pod was made."""
        self._done: Bounded[Step, bool] = Bounded(20_000)
        self._phases: Bounded[tuple[str, str], frozenset[str]] = Bounded(20_000)
        """Runtime and revision → the phases that it has."""

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.CONTROLLERREVISIONS and step.new is not None:
            place = (labels(step.new).get(names.RUNTIME_LABEL, ""), marks(step.new).get(names.REVISION_ANNOTATION, ""))
            self._phases.put(place, frozenset((step.new.get("data") or {}).get("phases") or ()))
        elif step.kind is kinds.PODS and step.old is None and is_phase_pod(step.new) and step.new is not None:
            work = step_of(step.new)
            self._pods.put(step.new["metadata"]["uid"], work)
            self._made.put(work, frozenset(labels(self.around.node(work.node)).items()))
        elif step.kind is kinds.NODES and step.of_controller:
            for runtime, old, new in moves(step):
                if old is not None and step.old is not None:
                    yield from self._moved(step, step.old, runtime, old, new)

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        work = self._pods.get(process.pod_uid)
        if work is not None and process.state is ContainerState.EXITED and process.exit_code == 0:
            self._done.put(work, value=True)
        yield from ()

    def _moved(self, step: Write, before: Object, runtime: str, old: NodeState, new: NodeState | None) -> Iterator[str]:
        to = Stage.ABSENT if new is None else new.stage
        if to not in FORWARD.get(old.stage, ()) or (new is not None and new.target not in (old.target, "")):
            return
        work = Step(step.name, runtime, old.uid, str(old.stage), old.target, old.attempt)
        if old.stage in AGENT_STAGES and not _answers(before, runtime, old):
            yield f"{step.name}: {runtime} went from {old.stage} to {to} without the agent's answer to {_words(old)}"
        if old.stage in POD_STAGES and self._has_phase(runtime, old) and not self._signalled(work, before):
            yield f"{step.name}: {runtime} went from {old.stage} to {to}, but no payload of {_words(old)} is done"

    def _signalled(self, work: Step, node: Object) -> bool:
        made = self._made.get(work)
        if self._done.get(work):
            return True
        return made is not None and bool(set(labels(node).items()) - made)

    def _has_phase(self, runtime: str, state: NodeState) -> bool:
        """By the revision, as long as there is one who could know of it."""
        known = self._phases.get((runtime, state.target)) or frozenset()
        owner = self.around.runtime(runtime)
        owned = owner is not None and owner["metadata"]["uid"] == state.uid
        return _FIELDS[state.stage] in known and (owned or self._is_kept(runtime, state.target))

    def _is_kept(self, runtime: str, revision: str) -> bool:
        return any(
            (labels(kept).get(names.RUNTIME_LABEL), marks(kept).get(names.REVISION_ANNOTATION)) == (runtime, revision)
            for kept in self.around.objects(kinds.CONTROLLERREVISIONS)
        )


class Once(Invariant):
    """No phase pod runs twice for the same node, runtime, stage, revision and attempt.

    Two pods of one attempt are one too many if a payload of the first one had started. Causes that begin the attempt
    anew: the Node's state has left the stage meanwhile, its machine is another one, or somebody else deleted the pod.
    """

    name = "once"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._ran: Bounded[str, bool] = Bounded(20_000)
        """UIDs of pods of which something has run."""
        self._pods: Bounded[Step, str] = Bounded(20_000)
        """Work → UID of the pod that was made for it last."""

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        if process.state is ContainerState.RUNNING:
            self._ran.put(process.pod_uid, value=True)
        yield from ()

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.NODES:
            self._forget(step)
        elif step.kind is kinds.PODS and is_phase_pod(step.any):
            work, uid = step_of(step.any), step.any["metadata"]["uid"]
            if step.old is None:
                before = self._pods.get(work)
                self._pods.put(work, uid)
                if before is not None and self._ran.get(before):
                    what = f"{work.stage} of {work.runtime}, revision {work.revision}, attempt {work.attempt}"
                    yield f"{work.node}: a second phase pod for {what}, whose payload had run"
            elif not step.of_controller and _dies(step) and self._pods.get(work) == uid:
                self._pods.entries.pop(work, None)

    def _forget(self, step: Write) -> None:
        for runtime, old, new in moves(step):
            if old is None or new is None or _place(old) != _place(new):
                for work in [w for w in self._pods.entries if (w.node, w.runtime) == (step.name, runtime)]:
                    del self._pods.entries[work]


class Attempts(Invariant):
    """A payload of an install runs three times at most for one revision, whatever dies in between.

    Counted are pods of which something has run, for as long as the Node's state stays on this revision, UID and
    machine in this stage. A person's `retry` begins the count anew; so does a pod that somebody else deleted.
    """

    name = "attempts"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._runs: dict[tuple[str, str], set[str]] = {}
        """Node and runtime → UIDs of the pods that have run in the present stage."""
        self._pods: Bounded[str, Step] = Bounded(20_000)

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.PODS and is_phase_pod(step.any):
            work = step_of(step.any)
            if step.old is None:
                self._pods.put(step.any["metadata"]["uid"], work)
            elif not step.of_controller and _dies(step):
                self._runs.pop((work.node, work.runtime), None)
        elif step.kind is kinds.NODES:
            for runtime, old, new in moves(step):
                if old is None or new is None or _place(old) != _place(new):
                    self._runs.pop((step.name, runtime), None)
            for key in set(marks(step.old)) ^ set(marks(step.new)):
                if key.startswith(names.RETRY_ANNOTATION_PREFIX):
                    self._runs.pop((step.name, key.removeprefix(names.RETRY_ANNOTATION_PREFIX)), None)
        yield from ()

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        work = self._pods.get(process.pod_uid)
        if work is None or process.state is not ContainerState.RUNNING or work.stage not in INSTALLS:
            return
        runs = self._runs.setdefault((work.node, work.runtime), set())
        runs.add(process.pod_uid)
        if len(runs) > MAX_ATTEMPTS:
            yield f"{work.node}: {len(runs)} runs of {work.stage} of {work.runtime}, revision {work.revision}"


_FIELDS = {
    Stage.PRE_INSTALL: "preInstall",
    Stage.INSTALL: "install",
    Stage.UNINSTALL: "uninstall",
    Stage.POST_UNINSTALL: "postUninstall",
}


def _place(state: NodeState) -> tuple[str, str, str, str]:
    return state.uid, str(state.stage), state.target, state.machine


def _words(state: NodeState) -> str:
    return f"revision {state.target}, attempt {state.attempt}"


def _dies(step: Write) -> bool:
    """Marked for deletion, or gone without a mark."""
    marked = "deletionTimestamp"
    old, new = (step.old or {}).get("metadata") or {}, (step.new or {}).get("metadata") or {}
    return marked not in old and (step.new is None or marked in new)


def _answers(node: Object, runtime: str, state: NodeState) -> bool:
    try:
        found = decode_report(marks(node).get(names.REPORT_ANNOTATION, "")).work.get(runtime)
    except msgspec.MsgspecError:
        return False
    asked = (state.uid, state.stage, state.target, state.attempt)
    return (
        found is not None
        and (found.uid, found.stage, found.revision, found.attempt) == asked
        and found.result is WorkResult.DONE
    )
