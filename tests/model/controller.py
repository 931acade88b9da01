"""What the controller may do next: steps on nodes, slots, finalizer, and writes that arrive late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.real import Real, Step
from tests.model.rules import Rules
from tests.model.system import Cell, Pod, State, System, Write, with_cell, with_host, with_runtime


class Edge(NamedTuple):
    """A transition. `kind`: progress (what a fair world does sooner or later), fault, goal, late (a deadline)."""

    words: str
    kind: str
    system: System


class Controller:
    """`slow`: one write at a time may be under way while others act. `memory`: the leader's looks are part of the
    state, and slots are handed out by what it remembers; without, whenever the real code would allow it."""

    def __init__(self, real: Real, rules: Rules, *, slow: bool, memory: bool, alone: bool) -> None:
        """`alone`: no other leader, so who takes a finalizer off knows of every write under way."""
        self._real, self._rules = real, rules
        self._slow, self._memory, self._alone = slow, memory, alone

    def edges(self, system: System) -> Iterator[Edge]:
        flying = any(c.write is not None for h in system.hosts for c in h.cells)
        for h, host in enumerate(system.hosts):
            if not host.exists:
                continue
            for r in range(len(system.runtimes)):
                yield from self._node(system, h, r, flying=flying)
        for r, runtime in enumerate(system.runtimes):
            if runtime.uid:
                yield from self._runtime(system, r)

    # --- one runtime on one node ---

    def _node(self, system: System, h: int, r: int, *, flying: bool) -> Iterator[Edge]:
        cell = system.hosts[h].cells[r]
        where = f"n{h}/{'ab'[r]}"
        if cell.write is not None:
            without = with_cell(system, h, r, cell._replace(write=None))
            arrived = self._applied(without, h, r, cell.write, live=False)
            yield Edge(f"{where}: the write under way arrives: {_words(cell.write)}", "progress", arrived)
            yield Edge(f"{where}: the write under way is lost", "fault", without)
        if any(c.write is not None for c in system.hosts[h].cells):
            return  # a node has one worker; a new leader comes when the old one's Lease, and its requests, are over
        step = self._real.step(system, h, r)
        if step.kind == "wait":
            if not self._memory:
                yield from self._slot(system, h, r, step)
            elif system.views[h][r] != step.view or not system.hosts[h].seen:
                yield Edge(f"{where}: {step.reason}", "progress", self._looked(system, h, r, step))
            return
        self._rules.decided(system, h, r, step)
        write = _write(step)
        if self._memory:  # noted before it is sent
            system = self._remembered(system, h, r, step)
        after = self._applied(system, h, r, write, live=True)
        if after != system:
            yield Edge(f"{where}: {step.reason}: {_words(write)}", "progress", after)
        if self._memory and not system.hosts[h].seen:
            seen = with_host(system, h, system.hosts[h]._replace(seen=True))
            yield Edge(f"{where}: the API server fails at {step.reason}: {_words(write)}", "fault", seen)
        if self._slow and not flying:
            kept = cell._replace(write=write)
            yield Edge(
                f"{where}: {step.reason}: {_words(write)}, which is under way", "fault", with_cell(system, h, r, kept)
            )

    def _applied(self, system: System, h: int, r: int, write: Write, *, live: bool) -> System:
        cell = system.hosts[h].cells[r]
        if write.kind == "make":
            assert write.state is not None
            return self._made(system, h, r, write.state, live=live)
        if write.kind == "end":
            return with_cell(system, h, r, _ended(cell, write.pod, at_once=not write.grace))
        self._rules.landed(system, h, r, write.state)
        moved = cell._replace(
            state=write.state,
            labelled=True,
            done_by=0 if "done" in write.clears else cell.done_by,
            retry=cell.retry and "retry" not in write.clears,
            skip=cell.skip and "skip" not in write.clears,
        )
        return written(with_cell(system, h, r, moved), h)

    def _made(self, system: System, h: int, r: int, state: State, *, live: bool) -> System:
        """`live`: the look past the caches and the write are one; else the look was before others acted."""
        cell = system.hosts[h].cells[r]
        own = (state.uid, state.stage, state.target, state.attempt)
        if live and (cell.pods or state.target not in system.runtimes[r].kept):
            return system
        if any((p.owner, p.stage, p.revision, p.attempt) == own for p in cell.pods):
            return system
        pod = Pod(1 + max((p.id for p in cell.pods), default=0), *own)
        return with_cell(system, h, r, cell._replace(pods=(*cell.pods, pod)))

    # --- slots ---

    def _slot(self, system: System, h: int, r: int, step: Step) -> Iterator[Edge]:
        """Any order in which `admit` can hand out slots, as far as one node sees it."""
        runtime = system.runtimes[r]
        where = f"n{h}/{'ab'[r]}"
        view = step.view
        if not runtime.uid or not view or system.hosts[h].cells[r].write is not None:
            return
        at_rest, wants, stuck, ready = view[0], view[1], view[2], view[3]
        if h in runtime.in_work:
            if stuck or not ready or (at_rest and not wants):
                self._rules.released(system, h, r)
                rest = tuple(n for n in runtime.in_work if n != h)
                yield Edge(
                    f"{where}: gives its slot back", "progress", with_runtime(system, r, runtime._replace(in_work=rest))
                )
        elif wants and len(runtime.in_work) < 1 and not system.stopped and not (runtime.paused and at_rest):
            taken = tuple(sorted((*runtime.in_work, h)))
            yield Edge(f"{where}: gets a slot", "progress", with_runtime(system, r, runtime._replace(in_work=taken)))

    def _looked(self, system: System, h: int, r: int, step: Step) -> System:
        system = self._remembered(system, h, r, step)
        host = system.hosts[h]
        seen = host.seen or all(v is not None for v in system.views[h])
        return with_host(system, h, host._replace(seen=seen))

    def _remembered(self, system: System, h: int, r: int, step: Step) -> System:
        row = (*system.views[h][:r], step.view, *system.views[h][r + 1 :])
        return system._replace(views=(*system.views[:h], row, *system.views[h + 1 :]))

    # --- one NodeRuntime ---

    def _runtime(self, system: System, r: int) -> Iterator[Edge]:
        runtime = system.runtimes[r]
        name = "ab"[r]
        if self._memory:
            yield from self._roll(system, r)
        if runtime.deleting:
            under_way = any(h.cells[r].write is not None for h in system.hosts)
            knows = self._memory and self._alone
            if self._real.ends(system, r) and (knows or not under_way):
                self._rules.ended(system, r)
                gone = runtime._replace(uid=0, deleting=False, finalizer=False, paused=False, kept=(), in_work=())
                yield Edge(f"{name}: the finalizer goes", "progress", with_runtime(system, r, gone))
            return
        if not runtime.finalizer:
            yield Edge(
                f"{name}: the finalizer is put on",
                "progress",
                with_runtime(system, r, runtime._replace(finalizer=True)),
            )
        elif runtime.revision not in runtime.kept:
            kept = tuple(sorted((*runtime.kept, runtime.revision)))
            yield Edge(
                f"{name}: revision {runtime.revision} is kept",
                "progress",
                with_runtime(system, r, runtime._replace(kept=kept)),
            )

    def _roll(self, system: System, r: int) -> Iterator[Edge]:
        """Slots as the leader's memory has it, with either order of the nodes' names."""
        runtime = system.runtimes[r]
        for in_work in {self._real.admission(system, r, order) for order in ("01", "10")}:
            if in_work == runtime.in_work:
                continue
            for h in set(runtime.in_work) - set(in_work):
                self._rules.released(system, h, r)
            words = f"{'ab'[r]}: slots of {list(runtime.in_work)} become those of {list(in_work)}"
            yield Edge(words, "progress", with_runtime(system, r, runtime._replace(in_work=in_work)))


def written(system: System, h: int) -> System:
    """The Node has changed: writes that carry an older resourceVersion will be refused."""
    for r, cell in enumerate(system.hosts[h].cells):
        if cell.write is not None and cell.write.kind == "move" and cell.write.fenced:
            system = with_cell(system, h, r, cell._replace(write=None))
    return system


def _write(step: Step) -> Write:
    return Write(step.kind, step.state, step.pod, step.grace > 0, step.fenced, step.clears)


def _ended(cell: Cell, uid: int, *, at_once: bool) -> Cell:
    pods = []
    for pod in cell.pods:
        if pod.id != uid:
            pods.append(pod)
        elif not at_once and pod.phase in ("pending", "running"):
            pods.append(pod._replace(deleting=True))
    return cell._replace(pods=tuple(pods))


def _words(write: Write) -> str:
    if write.kind == "end":
        return f"ends pod {write.pod} with {'its' if write.grace else 'no'} grace"
    if write.state is None:
        return "to absent"
    what = f"{write.state.stage} ({write.state.target}, attempt {write.state.attempt})"
    return f"makes the pod of {what}" if write.kind == "make" else f"to {what}"
