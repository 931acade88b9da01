"""The state of the whole: plain tuples, because millions of them are hashed. UIDs are small numbers, 0 is none."""

from __future__ import annotations

from typing import NamedTuple


class State(NamedTuple):
    """`NodeState`. `age`: 0 just begun, 1 the backoff or bake is over, 2 the deadline has passed."""

    stage: str
    uid: int
    installed: str = ""
    target: str = ""
    failed: str = ""
    attempt: int = 1
    pod: int = 0
    repairs: int = 0
    draining: bool = False
    error: str = ""
    forced: bool = False
    hurried: bool = False
    machine: int = 1
    age: int = 0


class Pod(NamedTuple):
    """A phase pod and what of it runs. `owner`: UID of the NodeRuntime that it was made for."""

    id: int
    owner: int
    stage: str
    revision: str
    attempt: int
    phase: str = "pending"
    """pending, running, done, failed (exit code not 0), refused (never ran)."""
    deleting: bool = False
    ended: bool = False
    """The agent has reported that nothing of it runs."""
    due: bool = False
    """The wait before a refused pod is made again is over."""


class Work(NamedTuple):
    """A piece of the agent's work, in hand or answered. `result` is empty while it is in hand."""

    uid: int
    stage: str
    revision: str
    attempt: int
    result: str = ""


class Write(NamedTuple):
    """A write that was decided and has not arrived: of a slow leader, or of one that leads no more."""

    kind: str
    state: State | None = None
    """Of a move: the new one. Of a pod: the one that it is made for."""
    pod: int = 0
    grace: bool = False
    fenced: bool = True
    """Whether it carries a precondition on the Node."""
    clears: tuple[str, ...] = ()


class Cell(NamedTuple):
    """One runtime on one node."""

    state: State | None = None
    labelled: bool = True
    """The labels say what the state says."""
    pods: tuple[Pod, ...] = ()
    answer: Work | None = None
    job: Work | None = None
    config: int = 0
    """UID for which the host's journal holds handlers in containerd's configuration."""
    lost: bool = False
    """Somebody took the handlers out of the configuration."""
    binaries: bool = False
    done_by: int = 0
    """Id of the pod that set the done label; -1: one that is gone; 0: no label."""
    users: bool = False
    """Running pods use the handlers."""
    retry: bool = False
    skip: bool = False
    write: Write | None = None


class Host(NamedTuple):
    cells: tuple[Cell, ...]
    exists: bool = True
    ready: bool = True
    serving: bool = True
    agent: bool = True
    machine: int = 1
    """Another number is a fresh root under the same name."""
    seen: bool = False
    """The leader has looked at it since it leads."""


class Runtime(NamedTuple):
    """A NodeRuntime; uid 0: there is none."""

    uid: int = 0
    revision: str = "r1"
    deleting: bool = False
    finalizer: bool = False
    paused: bool = False
    kept: tuple[str, ...] = ()
    """Revisions of which a ControllerRevision is kept."""
    in_work: tuple[int, ...] = ()


class System(NamedTuple):
    hosts: tuple[Host, ...]
    runtimes: tuple[Runtime, ...]
    stopped: bool = False
    views: tuple[tuple[tuple[object, ...] | None, ...], ...] = ()
    """What the leader remembers of its last looks, by host and runtime; None: not looked at since it leads."""
    faults: int = -1
    """How many more disturbances may come; -1: any number."""
    goals: int = -1
    """How many more changes of a goal may come; -1: any number."""


def with_cell(system: System, host: int, runtime: int, cell: Cell) -> System:
    old = system.hosts[host]
    cells = (*old.cells[:runtime], normal(cell), *old.cells[runtime + 1 :])
    return with_host(system, host, old._replace(cells=cells))


def with_host(system: System, host: int, new: Host) -> System:
    return system._replace(hosts=(*system.hosts[:host], new, *system.hosts[host + 1 :]))


def with_runtime(system: System, runtime: int, new: Runtime) -> System:
    return system._replace(runtimes=(*system.runtimes[:runtime], new, *system.runtimes[runtime + 1 :]))


# --- one name for what is the same -----------------------------------------------------------------

AGENT = ("configure", "unconfigure")
INSTALLING = ("pre-install", "install")
REST = ("ready", "failed")
_normal: dict[Cell, Cell] = {}


def normal(cell: Cell) -> Cell:
    """The same cell with small numbers for pods and attempts; a write that can do nothing any more is forgotten."""
    found = _normal.get(cell)
    if found is None:
        if len(_normal) > 2_000_000:
            _normal.clear()
        found = _normal[cell] = _attempts(_ids(cell))
    return found


def _ids(cell: Cell) -> Cell:
    if cell.write is not None and cell.write.kind == "end" and cell.write.pod not in {p.id for p in cell.pods}:
        cell = cell._replace(write=None)
    pods = sorted(cell.pods, key=lambda p: p[1:])
    new = {p.id: n for n, p in enumerate(pods, 1)} | {0: 0}
    write = cell.write
    if write is not None:
        write = write._replace(state=_renamed(write.state, new), pod=new.get(write.pod, 0))
    done_by = cell.done_by if cell.done_by == 0 else new.get(cell.done_by, -1)
    return cell._replace(
        state=_renamed(cell.state, new),
        pods=tuple(p._replace(id=new[p.id]) for p in pods),
        write=write,
        done_by=done_by,
    )


def _renamed(state: State | None, new: dict[int, int]) -> State | None:
    if state is None:
        return None
    age = 0 if state.stage in REST else state.age
    return state._replace(pod=new.get(state.pod, 0), age=age)


def _attempts(cell: Cell) -> Cell:
    """Only the order of attempts counts, and (but for an install, which has a limit) whether one is the first."""
    state, answer = cell.state, cell.answer
    wanted = [s for s in (state, cell.write.state if cell.write else None) if s is not None]
    if answer is not None and not any(
        (s.stage, s.uid, s.target) == (answer.stage, answer.uid, answer.revision) for s in wanted
    ):
        answer = answer._replace(attempt=1)
    found: dict[str, set[int]] = {}
    for stage, attempt in [
        *((s.stage, s.attempt) for s in wanted),
        *((p.stage, p.attempt) for p in cell.pods),
        *((w.stage, w.attempt) for w in (answer, cell.job) if w is not None),
    ]:
        found.setdefault(stage, set()).add(attempt)
    new = {stage: _ranks(stage, attempts) for stage, attempts in found.items()}

    def of(one: State | None) -> State | None:
        return None if one is None else one._replace(attempt=new[one.stage][one.attempt])

    def work(one: Work | None) -> Work | None:
        return None if one is None else one._replace(attempt=new[one.stage][one.attempt])

    return cell._replace(
        state=of(state),
        answer=work(answer),
        job=work(cell.job),
        pods=tuple(p._replace(attempt=new[p.stage][p.attempt]) for p in cell.pods),
        write=None if cell.write is None else cell.write._replace(state=of(cell.write.state)),
    )


def _ranks(stage: str, attempts: set[int]) -> dict[int, int]:
    exact = 0 if stage in AGENT else 4 if stage in INSTALLING else 1
    later = sorted(a for a in attempts if a > exact)
    return {a: a for a in attempts if a <= exact} | {a: exact + n for n, a in enumerate(later, 1)}


def canonical(system: System) -> System:
    """One of all systems that differ by the names of nodes and runtimes only."""
    hosts, runtimes = len(system.hosts), len(system.runtimes)
    best = system
    if runtimes == 2:
        best = min(best, _swap_runtimes(best), key=hash)
    if hosts == 2:
        one = _swap_hosts(system)
        best = min(best, one, *((_swap_runtimes(one),) if runtimes == 2 else ()), key=hash)
    return best


def _swap_hosts(s: System) -> System:
    runtimes = tuple(r._replace(in_work=tuple(sorted(1 - n for n in r.in_work))) for r in s.runtimes)
    return s._replace(hosts=s.hosts[::-1], runtimes=runtimes, views=s.views[::-1])


def _swap_runtimes(s: System) -> System:
    hosts = tuple(h._replace(cells=h.cells[::-1]) for h in s.hosts)
    return s._replace(hosts=hosts, runtimes=s.runtimes[::-1], views=tuple(v[::-1] for v in s.views))
