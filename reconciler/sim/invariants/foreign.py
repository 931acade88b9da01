"""What belongs to others stays as it is; and binaries stay while they are named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.api.node import decode_report
from reconciler.cri.api import ContainerState
from reconciler.sim import kinds
from reconciler.sim.config import Loaded
from reconciler.sim.invariants.barrier import KNOWN_AFTER
from reconciler.sim.invariants.base import (
    Invariant,
    Surroundings,
    Write,
    is_phase_pod,
    labels,
    marks,
    states,
    step_of,
)
from reconciler.sim.invariants.commits import AroundCommits
from reconciler.sim.invariants.daemons import COMMITS, blocks, foreign_lines
from reconciler.sim.kinds import Object
from reconciler.sim.node import SimNode
from reconciler.sim.runtime import Process

OUR_LABELS = (names.STAGE_LABEL_PREFIX, names.PRESENT_LABEL_PREFIX)
OUR_ANNOTATIONS = (
    names.STATE_ANNOTATION_PREFIX,
    names.RETRY_ANNOTATION_PREFIX,
    names.SKIP_ANNOTATION_PREFIX,
    names.REPORT_ANNOTATION,
)


class ForeignMarks(Invariant):
    """A foreign label, annotation, taint, finalizer, cordon or condition of a Node is never changed by us.

    Ours are the keys with our prefixes, our conditions, done labels that a NodeRuntime, a kept revision or the Node's
    state names, and startup taints that a NodeRuntime names: those we may take off. And no pod but a phase pod is
    deleted by us.
    """

    name = "foreign-marks"

    def wrote(self, step: Write) -> Iterator[str]:
        if not step.ours:
            return
        if step.kind is kinds.PODS and not is_phase_pod(step.any):
            yield f"{step.by} wrote to pod {step.namespace}/{step.name}, which is not ours"
        if step.kind is not kinds.NODES or step.old is None:
            return
        if step.new is None:
            yield f"{step.by} deleted Node {step.name}"
            return
        old, new = step.old, step.new
        yield from self._keys(step, "label", labels(old), labels(new), OUR_LABELS, self._done_labels(old))
        yield from self._keys(step, "annotation", marks(old), marks(new), OUR_ANNOTATIONS, frozenset())
        for field in ("finalizers", "ownerReferences"):
            if old["metadata"].get(field) != new["metadata"].get(field):
                yield f"{step.by} changed {field} of {step.name}"
        yield from self._spec(step, old.get("spec") or {}, new.get("spec") or {})
        yield from self._status(step, old.get("status") or {}, new.get("status") or {})

    def _keys(
        self,
        step: Write,
        what: str,
        old: dict[str, str],
        new: dict[str, str],
        prefixes: tuple[str, ...],
        removable: frozenset[str],
    ) -> Iterator[str]:
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) == new.get(key) or key.startswith(prefixes) or (key in removable and key not in new):
                continue
            yield f"{step.by} changed {what} {key} of {step.name} from {old.get(key)!r} to {new.get(key)!r}"

    def _spec(self, step: Write, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        if old.get("unschedulable") != new.get("unschedulable"):
            yield f"{step.by} changed the cordon of {step.name}"
        ours = self._startup_taints()
        before, after = ([t for t in s.get("taints") or () if _taint(t) not in ours] for s in (old, new))
        if before != after:
            yield f"{step.by} changed taints of {step.name} from {before} to {after}"

    def _status(self, step: Write, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
        before, after = ([c for c in _conditions(s) if c.get("type") not in names.AGENT_CONDITIONS] for s in (old, new))
        if before != after:
            yield f"{step.by} changed conditions of {step.name} that are not ours"
        for field in (old.keys() | new.keys()) - {"conditions"}:
            if old.get(field) != new.get(field):
                yield f"{step.by} changed status.{field} of {step.name}"

    def _done_labels(self, node: Object) -> frozenset[str]:
        specs = [runtime.get("spec") or {} for runtime in self.around.objects(kinds.NODERUNTIMES)]
        specs += [kept.get("data") or {} for kept in self.around.objects(kinds.CONTROLLERREVISIONS)]
        phases = [phase for spec in specs for phase in (spec.get("phases") or {}).values() if phase]
        found = (((phase.get("completion") or {}).get("nodeLabel") or {}).get("key") for phase in phases)
        before = (key for state in states(node).values() for key in state.signals)
        return frozenset(key for key in (*found, *before) if key)

    def _startup_taints(self) -> set[tuple[str, str]]:
        found = (runtime["spec"].get("startupTaints") or () for runtime in self.around.objects(kinds.NODERUNTIMES))
        return {_taint(taint) for taints in found for taint in taints}


class ForeignText(AroundCommits[list[bytes]]):
    """What others have written in containerd's configuration stays byte for byte, line by line, when an agent writes.

    Compared right before each step that puts other bytes in force and right before the next step, when nobody else
    could write yet; blocks between our comments and our import are ours, and so are empty lines. The guard puts back
    what was proven: it may, where the configuration would not start. Only in virtual time: elsewhere somebody else may
    write in between.
    """

    name = "foreign-text"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._broken: list[str] = []

    def ticked(self) -> Iterator[str]:
        found, self._broken = self._broken, []
        yield from found

    def before(self, node: SimNode, loaded: Loaded) -> list[bytes]:
        return foreign_lines(node.root)

    def after(self, node: SimNode, step: str, before: list[bytes]) -> None:
        after = foreign_lines(node.root)
        if after != before:
            lost = [line.decode(errors="replace") for line in before if line not in after]
            self._broken.append(f"{node.name}: the agent's `{step}` took away or changed what others wrote: {lost}")


class BinariesLast(Invariant):
    """Binaries leave only after the configuration that names them.

    When the payload of an uninstall starts on a node, no block of that runtime is in containerd's main file, no drop-in
    of it is there, and the running containerd has none of its handlers. A handler that others have written is theirs.
    """

    name = "binaries-last"

    def lived(self, node: SimNode, process: Process) -> Iterator[str]:
        if process.state is not ContainerState.RUNNING:
            return
        sandbox = node.runtime.sandboxes.get(process.sandbox_id)
        record = None if sandbox is None else self._pod(sandbox.name)
        if record is None:
            return
        work = step_of(record)
        if work.stage not in ("uninstall", "post-uninstall"):
            return
        if work.runtime in blocks(node.root):
            yield f"{node.name}: {work.stage} of {work.runtime} starts while the configuration still names its handlers"

    def _pod(self, name: str) -> Object | None:
        key = (self.around.cluster.options.namespace, name)
        record = self.around.cluster.server.store.get(kinds.PODS, key)
        return record.object if record is not None and is_phase_pod(record.object) else None


class FinalizerLast(Invariant):
    """The finalizer outlives the last touched node.

    When a controller takes it off, no Node carries a state, stage label or present label of that NodeRuntime; on no
    machine whose Node is there a payload of it runs or a block or drop-in of it lies. Left out are Nodes that a person
    gave up (`skip`), and disks of which nobody knows until an agent reports them: below a Node that was made anew, or
    one from which somebody took all our marks, the report too, and on which no agent has lived for the last 2 s.
    """

    name = "finalizer-last"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._touched: dict[str, str] = {}
        """Node → UID that it had when an agent committed last."""

    def traced(self, node: SimNode, step: str) -> Iterator[str]:
        found = self.around.node(node.name)
        if step.startswith(COMMITS) and found is not None:
            self._touched[node.name] = found["metadata"]["uid"]
        yield from ()

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is not kinds.NODERUNTIMES or step.old is None or not step.of_controller:
            return
        after = [] if step.new is None else step.new["metadata"].get("finalizers") or []
        if names.FINALIZER not in (step.old["metadata"].get("finalizers") or ()) or names.FINALIZER in after:
            return
        for node in self.around.objects(kinds.NODES):
            if names.skip_annotation(step.name) not in marks(node):
                yield from self._left(step.name, node)

    def _left(self, runtime: str, node: Object) -> Iterator[str]:
        name = node["metadata"]["name"]
        told = (names.state_annotation(runtime), names.stage_label(runtime), names.present_label(runtime))
        for key in (key for key in told if key in marks(node) or key in labels(node)):
            yield f"{runtime}: the finalizer went while {name} carries {key}"
        machine = self.around.machine(name)
        if machine is None or self._touched.get(name) != node["metadata"]["uid"]:
            return
        bare = not any(key in marks(node) or key in labels(node) for key in told) and not _reported(node)
        if bare and not self.around.agent_lives(name, KNOWN_AFTER):
            return
        if runtime in blocks(machine.root):
            yield f"{runtime}: the finalizer went while the configuration of {name} names it"


def _reported(node: Object) -> bool:
    """Whether it carries an agent's report that can be read."""
    try:
        decode_report(marks(node).get(names.REPORT_ANNOTATION, ""))
    except msgspec.MsgspecError:
        return False
    return True


def _conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status.get("conditions") or []
    return found


def _taint(taint: dict[str, str]) -> tuple[str, str]:
    return taint.get("key", ""), taint.get("effect", "")
