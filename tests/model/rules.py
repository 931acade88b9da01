"""The invariants (design section 11), by name; `checked` counts how often each was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.model.real import Payload, Step
from tests.model.system import Cell, Host, Pod, Runtime, State, System

LIMIT = 1
"""`rollout.maxUnavailable` of every NodeRuntime here."""
POD_STAGES = ("pre-install", "install", "uninstall", "post-uninstall")
AT_REST = ("ready", "failed")

SLOTS = "never more slots than allowed"
HOLDS = "nobody begins without a slot, and nobody at work loses his"
ACTORS = "never two actors on a node"
BARRIER = "no pod made or killed on facts that show a closed barrier"
FINALIZER = "the finalizer outlives the last touched node"
ORDER = "binaries never go before the configuration"
READY = "ready only when the handler is served"
SIGNAL = "a done signal of another attempt is never accepted"
EVIDENCE = "progress is recorded before its evidence is removed"
CLEAN = "absent and failed mean that nothing is left"
ALIVE = "no grace 0 for a pod that still runs"
STOPPED = "nothing begins while everything is stopped"
RULES = (SLOTS, HOLDS, ACTORS, BARRIER, FINALIZER, ORDER, READY, SIGNAL, EVIDENCE, CLEAN, ALIVE, STOPPED)


class Rules:
    """Checks of one exploration."""

    def __init__(self, payload: Payload) -> None:
        self.checked: Counter[str] = Counter()
        self.broken: list[str] = []
        """Since it was emptied: which rules do not hold, and how it shows."""
        self._payload = payload

    def check(self, rule: str, holds: bool, what: str) -> None:
        self.checked[rule] += 1
        if not holds:
            self.broken.append(f"{rule}: {what}")

    def state(self, system: System) -> None:
        """What must hold in each state."""
        for runtime in system.runtimes:
            self.check(SLOTS, len(runtime.in_work) <= LIMIT, f"{runtime.in_work} hold slots")
        for host in system.hosts:
            actors = list(_actors(host))
            self.check(ACTORS, len(actors) <= 1, f"{' and '.join(actors)} at once")
        for r, runtime in enumerate(system.runtimes):
            mine = [c.state for h in system.hosts if (c := h.cells[r]).state is not None and not c.skip]
            touched = any(s is not None and s.uid == runtime.uid for s in mine)
            self.check(FINALIZER, not touched or runtime.finalizer, "a node carries a state, and there is no finalizer")

    def decided(self, system: System, h: int, r: int, step: Step) -> None:
        """What a step must be founded on, in the state that it is decided in."""
        host, cell, runtime = system.hosts[h], system.hosts[h].cells[r], system.runtimes[r]
        state = cell.state
        if step.kind in ("make", "end"):
            self.check(BARRIER, host.serving, f"{step.kind} of a pod while containerd does not serve")
        if step.kind == "make":
            self.check(HOLDS, not runtime.uid or h in runtime.in_work, "a pod is made without a slot")
        if step.kind == "end":
            pod = next(p for p in cell.pods if p.id == step.pod)
            told = pod.phase in ("done", "failed") and _is_own(pod, state)
            self.check(EVIDENCE, not told, f"pod {pod.stage} tells how attempt {pod.attempt} ended and is removed")
            self.check(ALIVE, step.grace > 0 or pod.phase != "running", f"pod {pod.stage} runs and gets no grace")
        if step.begins:
            self.check(STOPPED, not system.stopped, f"{step.reason} although everything is stopped")
        if step.kind == "move":
            self._moved(cell, state, step, runtime)

    def _moved(self, cell: Cell, state: State | None, step: Step, runtime: Runtime) -> None:
        new = step.state
        if state is None:
            return
        known = state.target in runtime.kept and state.stage in self._payload.phases
        if known and state.stage in POD_STAGES and _follows(state, new, step.reason):
            own = next((p for p in cell.pods if _is_own(p, state)), None)
            done = own is not None and (cell.done_by == own.id if self._payload.label else own.phase == "done")
            self.check(SIGNAL, done, f"{state.stage}, attempt {state.attempt}, counts as done")
        if "configure" in state.stage and _follows(state, new, step.reason):
            a = cell.answer
            good = a is not None and (a.uid, a.stage, a.revision, a.attempt, a.result) == (
                state.uid,
                state.stage,
                state.target,
                state.attempt,
                "Done",
            )
            self.check(SIGNAL, good, f"{state.stage}, attempt {state.attempt}, counts as done; the answer is {a}")
        if (new is None or new.stage == "failed") and state.stage != "failed":
            self.check(CLEAN, not cell.config, "the configuration still holds the handler")
            given_up = state.uid != runtime.uid  # a person skipped it, and its revisions went with its NodeRuntime
            removable = "uninstall" in self._payload.phases and state.target in runtime.kept and not given_up
            self.check(CLEAN, not cell.binaries or not removable, "binaries are left")
            self.check(CLEAN, not any(p.phase == "running" for p in cell.pods), "a phase pod still runs")

    def landed(self, system: System, h: int, r: int, new: State | None) -> None:
        """A move has arrived."""
        host, runtime = system.hosts[h], system.runtimes[r]
        cell = host.cells[r]
        old = cell.state
        if not _works(old) and _works(new):
            self.check(HOLDS, not runtime.uid or h in runtime.in_work, "a node leaves rest without a slot")
        if new is not None and new.stage == "ready" and old is not None and old.stage != "ready":
            self.check(READY, cell.config == old.uid and not cell.lost, "ready, and CRI does not serve the handler")
            binaries = cell.binaries or "install" not in self._payload.phases or host.machine != old.machine
            self.check(READY, binaries, "ready without binaries")

    def started(self, cell: Cell, pod: Pod) -> None:
        if pod.stage in ("uninstall", "post-uninstall"):
            self.check(ORDER, not cell.config, f"{pod.stage} runs while containerd's configuration holds the handler")

    def released(self, system: System, h: int, r: int) -> None:
        """A slot is taken back: only from who rests, is stuck or NotReady, or is gone."""
        host = system.hosts[h]
        state = host.cells[r].state
        fine = not host.exists or not host.ready or not _works(state) or (state is not None and state.age == 2)
        self.check(HOLDS, fine, f"node {h} is at work in {state.stage if state else ''} and loses its slot")

    def ended(self, system: System, r: int) -> None:
        """The finalizer goes."""
        uid = system.runtimes[r].uid
        for host in system.hosts:
            cell = host.cells[r]
            if not cell.skip:
                carried = cell.state is not None and cell.state.uid == uid
                self.check(FINALIZER, not carried, f"it goes, and a node is in {cell.state and cell.state.stage}")
                self.check(FINALIZER, not cell.pods, "it goes, and a phase pod is there")


def _actors(host: Host) -> Iterator[str]:
    for cell in host.cells:
        for pod in cell.pods:
            if pod.phase == "running":
                yield f"pod {pod.stage}"
        if cell.job is not None:
            yield f"the agent's {cell.job.stage}"


def _works(state: State | None) -> bool:
    return state is not None and state.stage not in AT_REST


def _is_own(pod: Pod, state: State | None) -> bool:
    """The pod of this very attempt, by who asked for it, too."""
    return (
        state is not None
        and pod.id != state.pod
        and (pod.owner, pod.stage, pod.revision, pod.attempt) == (state.uid, state.stage, state.target, state.attempt)
    )


def _follows(state: State, new: State | None, reason: str) -> bool:
    """Whether this move says that the stage is done."""
    if reason not in ("PhaseDone", "Configured", "Ready", "Absent", "Failed", "PodsEnding"):
        return False
    going_out = new is None or new.stage in ("uninstall", "post-uninstall", "failed")
    return going_out == (state.stage in ("unconfigure", "uninstall", "post-uninstall"))
