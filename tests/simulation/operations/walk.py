"""Drives one simulated cluster through steps, and says the first thing that is wrong."""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.api import names
from reconciler.api.meta import ConfigMap
from reconciler.api.node import REST, decode_state
from reconciler.kube.errors import AlreadyExists, Invalid, NotFound
from reconciler.kube.resources import NODERUNTIMES, NODES, Resource
from reconciler.sim import clock, judge, kinds
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import Cluster, Options, running
from reconciler.sim.kinds import Object
from reconciler.sim.server import Audit
from tests.simulation.operations import snapshot
from tests.simulation.operations.model import GONE, STARTING, Model, base, edit, merge_patch, snapshotter
from tests.simulation.operations.operations import Create, Delete, Edit, Join, Label, Leave, Revert, Step, Wrong
from tests.simulation.operations.snapshot import Snapshot
from tests.simulation.operations.values import ACCOUNT

RUNTIMES = ("kata", "gvisor")
"""Names that a walk may use."""
Nodes = Mapping[str, dict[str, str]]
"""Name → labels."""
NODES_AT_FIRST: Nodes = {"node-1": {"pool": "a"}, "node-2": {"pool": "b"}, "node-3": {}}
FOREIGN_TAINT = {"key": "others/reserved", "effect": "NoSchedule"}
CALM = 80.0
"""Seconds without a write after which all is settled where every node rests: a deselected node waits for 60."""
CALM_AT_WORK = 700.0
"""The same while a node is at work: a phase times out after 600 s."""
SETTLE_MAX = 6000.0
AT_REST = 600.0
"""Seconds in which a settled system writes nothing."""
ASKED_MAX = 40
"""Of one NodeRuntime: what was refused is asked again every 15 to 25 s."""
POLL = 5.0
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where nodes have their disks: an fsync of a real one takes longer than all else. None: the usual place."""
WRITES = ("POST", "PUT", "PATCH", "DELETE")


SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", True, "ServiceAccount", ConfigMap)
"""Of an answer only the metadata are read."""


class Fault(Exception):
    """Something is not as it must be. The first line says what kind of thing."""


@dataclass(frozen=True)
class Checkpoint:
    """How the cluster was when `step` had settled."""

    step: str
    model: Model
    found: Snapshot


@dataclass
class Lab:
    """A running cluster and what has been asked of it."""

    cluster: Cluster
    model: Model
    sockets: AsyncExitStack
    before: dict[str, dict[str, str]] = field(default_factory=dict)
    """Node → its disk before anything was done."""
    history: dict[str, list[Any]] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    step: str = ""
    strict: bool = False
    """Whether every edit must be one that the API server takes."""
    settled: bool = False
    """Whether nothing was done since the last checkpoint."""

    # --- machines ---

    async def join(self, name: str, labels: dict[str, str]) -> None:
        node = self.cluster.add_node(name, **labels)
        await node.up()
        await node.daemon.served()
        taints = [FOREIGN_TAINT, *({"key": STARTING + runtime, "effect": "NoSchedule"} for runtime in RUNTIMES)]
        await self.cluster.admin.patch(NODES, name, {"spec": {"taints": taints}})
        for runtime in RUNTIMES:
            for number in (0, 1):
                address = node.root / snapshotter(runtime, number)["address"].lstrip("/")
                server = await asyncio.start_unix_server(lambda _, writer: writer.close(), address)
                await self.sockets.enter_async_context(server)
        self.before[name] = judge.disk(node.root)
        self.model.nodes[name] = dict(labels)

    async def leave(self, name: str) -> None:
        await self.cluster.power_off(name)
        await self.cluster.delete_node(name)
        del self.cluster.nodes[name]
        del self.model.nodes[name]

    # --- NodeRuntimes ---

    def object(self, runtime: str) -> Object | None:
        record = self.cluster.server.store.get(kinds.NODERUNTIMES, ("", runtime))
        return None if record is None else record.object

    async def create(self, runtime: str, spec: Any) -> None:
        # that a selector leaves every node is confirmed: what waits for that is tested elsewhere
        meta = {"name": runtime, "annotations": {names.CONFIRM_DESELECT_ANNOTATION: "true"}}
        begun = now()
        while True:
            try:
                await self.cluster.admin.create(NODERUNTIMES, {"metadata": meta, "spec": spec})
                break
            except AlreadyExists as error:
                if now() - begun > SETTLE_MAX:
                    raise Fault(f"not deleted within {SETTLE_MAX} s: {runtime}") from error
                await asyncio.sleep(0.3)
        self.model.runtimes[runtime] = spec
        self.model.note_vendor()

    async def change(self, runtime: str, spec: Any) -> None:
        try:
            await self.write(runtime, self.model.runtimes[runtime], spec)
        except Invalid:  # two good edits may not go together: two handlers of one name
            if self.strict:
                raise
            return
        self.history.setdefault(runtime, []).append(self.model.runtimes[runtime])
        self.model.runtimes[runtime] = spec
        self.model.note_vendor()

    async def write(self, runtime: str, old: Any, new: Any) -> None:
        await self.cluster.admin.patch(NODERUNTIMES, runtime, {"spec": merge_patch(old, new)})

    async def delete(self, runtime: str) -> None:
        if self.model.runtimes[runtime].get("paused"):  # or it would wait for ever, as it must
            await self.change(runtime, edit(runtime, self.model.runtimes[runtime], "paused", GONE))
        await self.cluster.admin.delete(NODERUNTIMES, runtime)
        del self.model.runtimes[runtime]
        self.history.pop(runtime, None)

    # --- looking ---

    def writes(self, since: float, *, refused: bool = False) -> list[Audit]:
        """Of controllers and agents, without their Leases and without rehearsals, which store nothing.

        `refused`: those instead that the API server has refused.
        """
        found = []
        for audit in reversed(self.cluster.server.audit):
            if audit.time < since:
                break
            counts = audit.method in WRITES and audit.user.startswith(("controller", "agent"))
            if (
                counts
                and (audit.status >= 400) == refused
                and not audit.rehearsed
                and audit.target.kind is not kinds.LEASES
            ):
                found.append(audit)
        return found

    def starts(self) -> int:
        return sum(len(node.daemon.starts) for node in self.cluster.nodes.values())

    def resting(self) -> bool:
        """Whether no node is in the middle of anything, and nothing waits for its deletion."""
        for _, record in self.cluster.server.store.all(kinds.NODES):
            for key, text in (record.object["metadata"].get("annotations") or {}).items():
                if key.startswith(names.STATE_ANNOTATION_PREFIX) and decode_state(text).stage not in REST:
                    return False
        runtimes = self.cluster.server.store.all(kinds.NODERUNTIMES)
        return not any("deletionTimestamp" in record.object["metadata"] for _, record in runtimes)

    async def settle(self) -> None:
        """Until nothing is written any more."""
        begun = now()
        while True:
            calm = CALM if self.resting() else CALM_AT_WORK
            if now() - begun >= calm and not self.writes(now() - calm):
                break
            if now() - begun > SETTLE_MAX:
                raise Fault("does not settle\n" + told(self.writes(now() - calm)))
            await asyncio.sleep(POLL)

    async def rest(self) -> None:
        """Settle; then nothing may be written for a long time."""
        await self.settle()
        starts, begun = self.starts(), now()
        await asyncio.sleep(AT_REST)
        if written := self.writes(begun):
            raise Fault("written at rest\n" + told(written))
        if len(asked := self.writes(begun, refused=True)) > ASKED_MAX * len(self.model.runtimes):
            raise Fault("asked too often at rest\n" + told(asked))
        if self.starts() != starts:
            raise Fault("containerd restarted at rest")

    async def check(self) -> None:
        await self.rest()
        found = snapshot.take(self.cluster, self.model)
        self._paused_stands_still(found)
        self.checkpoints.append(Checkpoint(self.step, self.model.copy(), found))
        self.settled = True

    def _paused_stands_still(self, found: Snapshot) -> None:
        if not self.checkpoints:
            return
        last = self.checkpoints[-1]
        for runtime, spec in self.model.runtimes.items():
            if not (spec.get("paused") and last.model.runtimes.get(runtime, {}).get("paused")):
                continue
            key = f"annotation {names.state_annotation(runtime)}"
            was, is_now = ({w: t for w, t in s.items() if w.endswith(key)} for s in (last.found, found))
            gone = {where for where in was if where.split()[0] not in self.model.nodes}
            if lines := snapshot.difference(is_now, {w: t for w, t in was.items() if w not in gone}):
                raise Fault("paused, and not still\n" + "\n".join(lines))

    def left_behind(self) -> list[str]:
        labels = {name: {"kubernetes.io/hostname": name, **own} for name, own in self.model.nodes.items()}
        left = judge.left_behind(self.cluster, judge.World(self.before, labels))
        theirs = tuple(f"/opt/{runtime}/" for runtime in self.model.vendor)
        return [line for line in left if not any(path in line for path in theirs)]


@asynccontextmanager
async def lab(root: Path, nodes: Nodes, *, seed: int) -> AsyncIterator[Lab]:
    """A cluster of these nodes (name → labels), on which nothing is installed."""
    options = Options(root=root, clock=clock.VirtualClock(), agent=real_agent, nodes=0, seed=seed)
    async with running(options) as cluster, AsyncExitStack() as sockets:
        await cluster.admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": ACCOUNT}}, options.namespace)
        made = Lab(cluster, Model({}), sockets)
        for name, labels in nodes.items():
            await made.join(name, labels)
        yield made


def now() -> float:
    return asyncio.get_running_loop().time()


def told(written: Sequence[Audit]) -> str:
    lines = (
        f"  {a.time:.1f} s: {a.user} {a.method} {a.target.kind.plural} {a.target.name} → {a.status}"
        for a in written[:20]
    )
    return "\n".join(lines)


# --- steps ---


async def do(lab: Lab, step: Step) -> None:
    """Raises Fault. What cannot be done (an edit of what is not there) is left out."""
    lab.step = str(step)
    operation = step.operation
    model = lab.model
    runtimes = model.runtimes
    match operation:
        case Create(runtime) if runtime not in runtimes:
            await lab.create(runtime, base(runtime))
        case Delete(runtime) if runtime in runtimes:
            await lab.delete(runtime)
        case Edit(runtime, edits) if runtime in runtimes:
            await lab.change(runtime, edited(runtime, runtimes[runtime], edits))
        case Revert(runtime) if runtime in runtimes and lab.history.get(runtime):
            await lab.change(runtime, lab.history[runtime][-1])
        case Wrong(runtime) if runtime in runtimes and not model.held:
            await _wrong(lab, operation)
            return
        case Label(node, key, value) if node in model.nodes:
            await lab.cluster.admin.patch(NODES, node, {"metadata": {"labels": {key: value}}})
            model.nodes[node].pop(key, None)
            if value is not None:
                model.nodes[node][key] = value
        case Join(node) if node not in model.nodes:
            await lab.join(node, {"pool": "a"})
        case Leave(node) if node in model.nodes and len(model.nodes) > 1:
            await lab.leave(node)
        case _:
            return
    lab.settled = False
    if step.wait is None:
        await lab.check()
    else:
        await asyncio.sleep(step.wait)


def edited(runtime: str, spec: Any, edits: tuple[tuple[str, Any], ...]) -> Any:
    for path, value in edits:
        spec = edit(runtime, spec, path, value)
    return spec


async def _wrong(lab: Lab, wrong: Wrong) -> None:
    runtime = wrong.runtime
    good = lab.model.runtimes[runtime]
    bad = edited(runtime, good, wrong.edits)
    if bad == good:
        return
    if wrong.found_by == "schema":
        await _refused(lab, runtime, good, bad)
        return
    await lab.settle()
    before = snapshot.take(lab.cluster, lab.model)
    knobs = lab.cluster.server.knobs
    knobs.schema = wrong.found_by != "older CRD"
    try:
        try:
            await lab.write(runtime, good, bad)
        except Invalid:  # what goes with the wrong value may not go together with what is there
            return
        await lab.rest()
        if wrong.found_by == "node":
            _in_trouble(lab, runtime)
        else:
            _told_and_untouched(lab, wrong, before)
        await lab.write(runtime, bad, good)
    finally:
        knobs.schema = True
    await lab.check()


async def _refused(lab: Lab, runtime: str, good: Any, bad: Any) -> None:
    before = lab.object(runtime)
    try:
        await lab.write(runtime, good, bad)
    except (Invalid, NotFound):
        before, after = (None if o is None else o.get("spec") for o in (before, lab.object(runtime)))
        if before != after:
            raise Fault("refused, and stored") from None
        return
    raise Fault(f"the API server took what its schema should refuse: {bad}")


def condition(lab: Lab, runtime: str, kind: str) -> Object:
    conditions = ((lab.object(runtime) or {}).get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def _in_trouble(lab: Lab, runtime: str) -> None:
    conditions = [condition(lab, runtime, kind) for kind in ("Degraded", "Stuck")]
    if not any(c.get("status") == "True" and c.get("message") for c in conditions):
        raise Fault(f"a node cannot get there, and nothing says so\n{conditions}")


def _told_and_untouched(lab: Lab, wrong: Wrong, before: Snapshot) -> None:
    after = snapshot.take(lab.cluster, lab.model)
    if lines := snapshot.difference(snapshot.nodes_only(after), snapshot.nodes_only(before)):
        raise Fault("a wrong value changed a node\n" + "\n".join(lines))
    degraded = condition(lab, wrong.runtime, "Degraded")
    if degraded.get("status") != "True" or not degraded.get("message"):
        raise Fault(f"a wrong value is not told\n{degraded}")


# --- whole walks ---


def walk(
    steps: Sequence[Step], *, seed: int = 1, nodes: Nodes = NODES_AT_FIRST, strict: bool = False
) -> list[Checkpoint]:
    """Do all of them on a cluster of its own, hold nothing in the end, and delete everything. Raises Fault.

    `strict`: and Invalid for an edit that is refused, else it is left out.
    """
    with tempfile.TemporaryDirectory(prefix="ops-", dir=MEMORY) as root:
        return clock.run(_walk(Path(root), steps, seed, nodes, strict))


async def _walk(root: Path, steps: Sequence[Step], seed: int, nodes: Nodes, strict: bool) -> list[Checkpoint]:
    async with lab(root, nodes, seed=seed) as made:
        made.strict = strict
        try:
            for step in steps:
                await do(made, step)
            await _end(made)
        except Fault as fault:
            raise Fault(f"{fault}\nat: {made.step}\nspecs: {made.model.runtimes}") from fault
        return made.checkpoints


async def _end(lab: Lab) -> None:
    lab.step = "the end: nothing is held"
    for runtime, spec in [*lab.model.runtimes.items()]:
        free = edited(runtime, spec, (("paused", GONE), ("rollout.canary.pause", GONE)))
        if free != spec:
            await lab.change(runtime, free)
    if not lab.checkpoints or lab.checkpoints[-1].model.key() != lab.model.key() or not lab.settled:
        await lab.check()
    lab.step = "the end: everything is deleted"
    for runtime in [*lab.model.runtimes]:
        await lab.delete(runtime)
    await lab.check()
    if left := lab.left_behind():
        raise Fault("left behind\n" + "\n".join(left))


_fresh: dict[tuple[int, str], Snapshot] = {}


def fresh(model: Model, *, seed: int = 1) -> Snapshot:
    """A cluster on which this was installed at once; of two that ask for the same, the first one's. Raises Fault."""
    key = (seed, f"{model.key()} {sorted(model.vendor)}")
    if key not in _fresh:
        with tempfile.TemporaryDirectory(prefix="ops-", dir=MEMORY) as root:
            _fresh[key] = clock.run(_install(Path(root), model, seed))
    return _fresh[key]


async def _install(root: Path, model: Model, seed: int) -> Snapshot:
    async with lab(root, model.nodes, seed=seed) as made:
        for runtime, spec in model.runtimes.items():
            await made.create(runtime, spec)
            await asyncio.sleep(1.5)  # ages are told by the second
        await made.settle()
        return snapshot.take(made.cluster, model)


def compare(checkpoints: Sequence[Checkpoint], *, seed: int = 1) -> None:
    """Every settled state that does not hang on a person's word is that of a fresh cluster. Raises Fault."""
    for point in checkpoints:
        if point.model.held:
            continue
        if lines := snapshot.difference(point.found, fresh(point.model, seed=seed)):
            raise Fault("not as installed afresh (-)\n" + "\n".join([*lines, f"after: {point.step}"]))


def run(steps: Sequence[Step], *, seed: int = 1, nodes: Nodes = NODES_AT_FIRST) -> str:
    """What is wrong; "" when nothing is."""
    try:
        compare(walk(steps, seed=seed, nodes=nodes), seed=seed)
    except Fault as fault:
        return str(fault)
    except Exception:
        return f"the simulation broke\n{traceback.format_exc()}"
    return ""
