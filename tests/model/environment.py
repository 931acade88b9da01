"""What everybody else may do next: kubelet, agent, containerd, people, and time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.controller import Edge, written
from tests.model.real import Payload
from tests.model.rules import Rules
from tests.model.system import AGENT, REST, Cell, Host, Pod, System, Work, with_cell, with_host, with_runtime

EVERY = frozenset(
    {
        "payload",
        "deletes",
        "containerd",
        "node",
        "gone",
        "agent",
        "labels",
        "lost",
        "users",
        "people",
        "stop",
        "late",
        "crash",
    }
)
"""Groups of disturbances. payload: a phase fails or its pod is refused; deletes: somebody deletes a phase pod;
containerd, node, agent: not there for a while; gone: the Node is deleted and comes back under another UID, with its
disk or without; labels: a kubelet that registers anew; lost: handlers are taken out of the configuration; users:
pods that use them; people: paused, retry, skip; stop; late: deadlines pass; crash: a change of leader."""
UNDER_WAY = ("pending", "running")


class Environment:
    def __init__(self, payload: Payload, rules: Rules, groups: frozenset[str], revisions: tuple[str, ...]) -> None:
        self._payload, self._rules, self._groups, self._revisions = payload, rules, groups, revisions

    def edges(self, system: System) -> Iterator[Edge]:
        for h, host in enumerate(system.hosts):
            yield from self._host(system, h, host)
            if host.exists:
                for r, cell in enumerate(host.cells):
                    yield from self._cell(system, h, r, host, cell)
        for r in range(len(system.runtimes)):
            yield from self._goals(system, r)
        yield from self._everything(system)

    def _has(self, group: str) -> bool:
        return group in self._groups

    # --- a node ---

    def _host(self, system: System, h: int, host: Host) -> Iterator[Edge]:
        if not host.exists:
            for words, machine in (("the same", host.machine), ("a fresh", 3 - host.machine)):
                back = Host(tuple(_back(c, fresh=machine != host.machine) for c in host.cells), machine=machine)
                yield Edge(f"n{h}: comes back with {words} disk", "progress", with_host(system, h, back))
            return
        for group, field in (("containerd", "serving"), ("node", "ready"), ("agent", "agent")):
            if not getattr(host, field):
                good = with_host(system, h, host._replace(**{field: True}))
                yield Edge(f"n{h}: {field} again", "progress", self._recovered(good, h, field))
            elif self._has(group):
                bad = with_host(system, h, host._replace(**{field: False}))
                if field == "agent":
                    yield from self._agent_dies(bad, h)
                else:
                    yield Edge(f"n{h}: not {field}", "fault", written(bad, h))
        if self._has("gone"):
            cells = tuple(Cell(config=c.config, lost=c.lost, users=c.users) for c in host.cells)
            gone = Host(cells, exists=False, machine=host.machine)
            views = system.views and (*system.views[:h], (None,) * len(cells), *system.views[h + 1 :])
            yield Edge(f"n{h}: the Node is deleted", "fault", with_host(system, h, gone)._replace(views=views))

    def _recovered(self, system: System, h: int, field: str) -> System:
        """Deadlines and bakes begin anew."""
        for r, cell in enumerate(system.hosts[h].cells):
            state = cell.state
            if state is None or state.stage in REST or field == "agent":
                continue
            age = 0 if state.stage == "verify" and field == "serving" else min(state.age, 1)
            if field == "ready" or state.stage == "verify":
                system = with_cell(system, h, r, cell._replace(state=state._replace(age=age)))
        return written(system, h) if field != "agent" else system

    def _agent_dies(self, system: System, h: int) -> Iterator[Edge]:
        """Its work in hand is lost, or done and not told of; the journal on the host makes either whole."""
        for r, cell in enumerate(system.hosts[h].cells):
            if cell.job is not None:
                done = _done(cell, cell.job)._replace(job=None, answer=cell.answer)
                yield Edge(f"n{h}: the agent dies after its change", "fault", with_cell(system, h, r, done))
                system = with_cell(system, h, r, cell._replace(job=None))
        yield Edge(f"n{h}: no agent", "fault", system)

    # --- one runtime on it ---

    def _cell(self, system: System, h: int, r: int, host: Host, cell: Cell) -> Iterator[Edge]:
        where = f"n{h}/{'ab'[r]}"
        for pod in cell.pods:
            for words, kind, changed in self._pod(host, cell, pod):
                after = with_cell(system, h, r, changed)
                if changed.done_by != cell.done_by or words.endswith("over"):
                    after = written(after, h)
                yield Edge(f"{where}: pod {pod.stage} {words}", kind, after)
        for words, kind, changed in self._agent(system, host, r):
            after = with_cell(system, h, r, changed)
            yield Edge(f"{where}: {words}", kind, written(after, h) if changed.answer != cell.answer else after)
        for words, kind, changed in self._others(cell, stopped=system.stopped):
            after = with_cell(system, h, r, changed)
            if kind in ("late", "wait"):
                yield Edge(f"{where}: {words}", "progress" if kind == "wait" else kind, after)
            else:
                yield Edge(f"{where}: {words}", kind, written(after, h))

    def _pod(self, host: Host, cell: Cell, pod: Pod) -> Iterator[tuple[str, str, Cell]]:
        if host.ready and host.serving:
            yield from self._kubelet(cell, pod)
        finished = pod.phase in ("done", "failed", "refused")
        sealed_later = pod.stage == "install" and pod.phase == "done" and not pod.deleting
        leaving = (pod.deleting or finished) and pod.phase != "running" and not sealed_later
        if leaving and not pod.ended and host.agent and host.serving:
            yield "is told to be over", "progress", _with(cell, pod, ended=True)
        if pod.phase == "refused" and not pod.due:
            yield "may be made again soon", "progress", _with(cell, pod, due=True)
        if self._has("deletes") and not pod.deleting:
            if finished:
                yield "is deleted by somebody", "fault", _without(cell, pod)
            else:
                yield "is being deleted by somebody", "fault", _with(cell, pod, deleting=True)

    def _kubelet(self, cell: Cell, pod: Pod) -> Iterator[tuple[str, str, Cell]]:
        if pod.phase == "pending" and not pod.deleting:
            self._rules.started(cell, pod)
            begun = _with(cell, pod, phase="running")
            yield "runs", "progress", begun._replace(binaries=True) if pod.stage == "install" else begun
            if self._has("payload"):
                yield "is refused", "fault", _with(cell, pod, phase="refused")
        if pod.phase == "running":
            good = _effect(cell, pod)
            if self._payload.label:
                if cell.done_by != pod.id:
                    yield "sets its label", "progress", good._replace(done_by=pod.id)
            else:
                yield "ends well", "progress", _with(good, pod, phase="done")
            if self._has("payload"):
                yield "fails", "fault", _with(cell, pod, phase="failed")
            if pod.deleting:
                yield "is killed", "progress", _with(cell, pod, phase="failed")
        if pod.deleting and pod.phase != "running":
            yield "is gone", "progress", _without(cell, pod)

    def _agent(self, system: System, host: Host, r: int) -> Iterator[tuple[str, str, Cell]]:
        cell = host.cells[r]
        state, answer = cell.state, cell.answer
        if not host.agent:
            return
        if cell.job is not None:
            yield f"the agent ends {cell.job.stage}", "progress", _done(cell, cell.job)
            if self._has("agent"):
                failed = cell._replace(job=None, answer=cell.job._replace(result="Failed"))
                yield f"the agent undoes {cell.job.stage}", "fault", failed
            return
        if state is None:
            if answer is not None:
                yield "the agent's old answer goes", "progress", cell._replace(answer=None)
            return
        work = Work(state.uid, state.stage, state.target, state.attempt)
        answered = answer is not None and answer._replace(result="") == work
        if answer is not None and answer.result == "Waiting" and not answered:
            yield f"the agent lets go of {answer.stage}", "progress", cell._replace(answer=None)
        if state.stage not in AGENT:
            return
        if answered and answer is not None and answer.result != "Waiting":
            return
        if self._has("agent") and not answered:
            yield (
                f"the agent cannot begin {state.stage}",
                "fault",
                cell._replace(answer=work._replace(result="Waiting")),
            )
        if self._may_begin(system, host, r):
            yield f"the agent begins {state.stage}", "progress", cell._replace(job=work)

    def _may_begin(self, system: System, host: Host, r: int) -> bool:
        """As `agent.work` and `agent.gate`: one piece at a time, nothing of the pod before runs, nobody uses it."""
        cell = host.cells[r]
        state = cell.state
        assert state is not None
        if system.stopped or any(c.job is not None for c in host.cells):
            return False
        before = next((p for p in cell.pods if p.id == state.pod), None)
        if before is not None and not before.ended and (before.phase in UNDER_WAY or not host.serving):
            return False
        if state.stage == "configure":
            return host.serving and state.target in system.runtimes[r].kept
        return not cell.users or state.forced

    def _others(self, cell: Cell, *, stopped: bool) -> Iterator[tuple[str, str, Cell]]:
        state = cell.state
        if state is not None and state.stage not in REST and state.age < 2:
            if state.age == 0 and state.stage not in AGENT and (state.stage == "verify" or state.attempt > 1):
                yield "time passes", "wait", cell._replace(state=state._replace(age=1))
            elif self._has("late") and not stopped:
                yield "the deadline passes", "late", cell._replace(state=state._replace(age=2))
        if self._has("labels") and cell.labelled and state is not None:
            yield "its labels are lost", "fault", cell._replace(labelled=False)
        if self._has("lost") and cell.config and not cell.lost:
            yield "its handler is taken out", "fault", cell._replace(lost=True)
        if state is not None and state.repairs:
            yield "a repair is an hour ago", "wait", cell._replace(state=state._replace(repairs=state.repairs - 1))
        if cell.users and not self._payload.force:
            yield "its last user goes", "wait", cell._replace(users=False)
        elif self._has("users") and not cell.users and state is not None and state.installed and not state.draining:
            yield "a pod uses it", "fault", cell._replace(users=True)
        if self._has("people") and state is not None:
            if not cell.retry:
                yield "a person asks for a retry", "goal", cell._replace(retry=True)
            if not cell.skip:
                yield "a person skips it", "goal", cell._replace(skip=True)

    # --- goals ---

    def _goals(self, system: System, r: int) -> Iterator[Edge]:
        runtime, name = system.runtimes[r], "ab"[r]
        if runtime.paused:
            yield Edge(f"{name}: resumed", "progress", with_runtime(system, r, runtime._replace(paused=False)))
        if not runtime.uid:
            carried = {c.state.uid for h in system.hosts if (c := h.cells[r]).state is not None}
            carried |= {h.cells[r].config for h in system.hosts} | {
                p.owner for h in system.hosts for p in h.cells[r].pods
            }
            carried |= {h.cells[r].write.state.uid for h in system.hosts if h.cells[r].write and h.cells[r].write.state}
            uid = min({1, 2, 3, 4, 5} - carried)
            new = runtime._replace(uid=uid, revision="r1")
            yield Edge(f"{name}: made (UID {uid})", "goal", with_runtime(system, r, new))
            return
        if self._has("people") and not runtime.paused:
            yield Edge(f"{name}: paused", "goal", with_runtime(system, r, runtime._replace(paused=True)))
        if runtime.deleting:
            return
        for revision in self._revisions:
            if revision != runtime.revision:
                turned = runtime._replace(revision=revision)
                yield Edge(f"{name}: the goal is {revision}", "goal", with_runtime(system, r, turned))
        if runtime.finalizer:
            gone = runtime._replace(deleting=True)
        else:
            gone = runtime._replace(uid=0, paused=False, in_work=())
        yield Edge(f"{name}: deleted", "goal", with_runtime(system, r, gone))

    def _everything(self, system: System) -> Iterator[Edge]:
        if system.stopped:
            yield Edge("a person lifts the stop", "progress", system._replace(stopped=False))
        elif self._has("stop"):
            yield Edge("a person stops everything", "goal", system._replace(stopped=True))
        if self._has("crash"):
            yield Edge("another controller leads", "fault", _another_leader(system))


def _another_leader(system: System) -> System:
    """Memory is lost, and no deadline passes for a while. Writes under way may still arrive."""
    for h, host in enumerate(system.hosts):
        for r, cell in enumerate(host.cells):
            if cell.state is not None and cell.state.age == 2:
                system = with_cell(system, h, r, cell._replace(state=cell.state._replace(age=1)))
        if system.views:
            system = with_host(system, h, system.hosts[h]._replace(seen=False))
    return system._replace(views=tuple(tuple(None for _ in row) for row in system.views))


def _back(cell: Cell, *, fresh: bool) -> Cell:
    return Cell() if fresh else Cell(config=cell.config, lost=cell.lost)


def _done(cell: Cell, job: Work) -> Cell:
    config = job.uid if job.stage == "configure" else 0
    return cell._replace(job=None, answer=job._replace(result="Done"), config=config, lost=False)


def _effect(cell: Cell, pod: Pod) -> Cell:
    return cell._replace(binaries=False) if pod.stage == "uninstall" else cell


def _with(cell: Cell, pod: Pod, **changes: object) -> Cell:
    return cell._replace(pods=tuple(p._replace(**changes) if p.id == pod.id else p for p in cell.pods))


def _without(cell: Cell, pod: Pod) -> Cell:
    return cell._replace(pods=tuple(p for p in cell.pods if p.id != pod.id))
