"""One run of a story in virtual time, with one fault or none: what it was made of, and what was wrong with it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.agent import Agent
from reconciler.controller import Controller
from reconciler.kube.client import Client
from reconciler.sim import clock
from reconciler.sim.agents import real_agent
from reconciler.sim.cluster import Cluster, Options, running
from reconciler.sim.kinds import Kind
from reconciler.sim.life import Killed, Life
from reconciler.sim.node import SimNode
from reconciler.sim.past import Past
from reconciler.sim.requests import Request
from reconciler.sim.server import Knobs, Trouble
from reconciler.sim.store import Event
from tests.sieve import disk, timeline
from tests.sieve.eyes import Eyes
from tests.sieve.faults import Fault, Hands, Side
from tests.sieve.stories import Story
from tests.simulation.conftest import Scenario

SETTLE = 30.0
"""Seconds at the end after which everybody is at rest: a leader that was killed at the last moment has a successor."""
REST = 10.0
"""Seconds at the end in which nobody of ours may write anything but a Lease."""
CONTROLLER = "controller:controller-1"


@dataclass
class Step:
    """Something that a process does outside itself."""

    actor: str
    number: int
    what: str
    done: bool = False
    """It was carried out, and not refused by the kernel or by a daemon that was away."""


@dataclass
class Record:
    """What a run came to."""

    steps: list[Step] = field(default_factory=list)
    """Until the story was over; so are changes."""
    changes: list[tuple[int, Kind, Event]] = field(default_factory=list)
    """Every version of every object, in order."""
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The timeline."""
    seconds: float = 0.0
    """Simulated."""
    merged: bool = False
    """The fault withheld changes until others could be seen with them."""


def run(story: Story, fault: Fault | None = None, *, controller: type[Controller] = Controller) -> Record:
    """Blocks until the run is over. What it leaves in memory goes with it."""
    work = _Run(story, fault or Fault(), controller)
    with tempfile.TemporaryDirectory(dir=_memory()) as root, disk.watched(work.tears), work.listening():
        clock.run(work.main(Path(root)))
    return work.record


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class _Run(logging.Handler):
    """Beside all else it hears what is logged of processes that died by themselves."""

    def __init__(self, story: Story, fault: Fault, controller: type[Controller]) -> None:
        super().__init__(logging.ERROR)
        self.record = Record()
        self._story, self._fault, self._controller = story, fault, controller
        self._numbers: Counter[str] = Counter()
        self._pods = 0
        self._begun = self._over = False
        self._cluster: Cluster
        self._eyes: Eyes

    async def main(self, root: Path) -> None:
        options = Options(
            root=root,
            clock=clock.VirtualClock(),
            agent=self._agent,
            controller=self._controller,
            nodes=self._story.nodes,
            knobs=Knobs(trouble=self._request, past=Past(self._fault.horizon, self._fault.merges)),
        )
        async with running(options) as self._cluster:
            self._begin()
            scenario = Scenario(self._cluster)
            try:
                await self._story.main(scenario)
                await scenario.until(lambda: not scenario.left(), 60.0)
                self._over = True
                await asyncio.sleep(SETTLE)
            except AssertionError as error:
                self.problem(str(error).splitlines()[0])
            await self._at_rest()
            for line in (*scenario.left(), *(str(breach) for breach in scenario.observer.broken)):
                self.problem(line)
            self._count(scenario)
            self.record.seconds = scenario.now
        if not self._fault.acted and type(self._fault) is not Fault:
            self.problem("the point was never reached")

    def _begin(self) -> None:
        store = self._cluster.server.store
        self._fault.hands = Hands(store, self._kill, self._say)
        self._eyes = Eyes(self._cluster, self.problem)
        store.written.append(self._wrote)
        for node in self._cluster.nodes.values():
            node.step = self._stepping(f"agent:{node.name}")
            node.life.watch(node.step)
        self._begun = True

    # --- what happens ---

    def _wrote(self, kind: Kind, event: Event) -> None:
        if not self._over:
            self.record.changes.append((event.version, kind, event))
        self._pods += kind.plural == "pods" and event.old is None and event.key[1].startswith("rr-")
        for line in timeline.of(kind, event):
            self._say(line)
        self._eyes.told(kind, event)
        self._fault.wrote(kind, event)

    def _request(self, request: Request) -> Trouble | None:
        ours = request.user.startswith(("controller", "agent"))
        if not self._begun or request.method == "GET" or not ours or request.query.get("dryRun"):
            return None
        step = self._step(request.user, f"{request.method} {request.path}")
        step.done = True
        return self._fault.request(step.actor, step.number, step.what)

    def _stepping(self, actor: str) -> Callable[[str], Callable[[], None]]:
        def begin(what: str) -> Callable[[], None]:
            step = self._step(actor, what)
            self._fault.step(actor, step.number, what, Side.BEFORE)

            def done() -> None:
                step.done = True
                self._fault.step(actor, step.number, what, Side.AFTER)

            return done

        return begin

    def tears(self, life: Life) -> bool:
        """Whether the write that has just begun is torn."""
        node = next(node for node in self._cluster.nodes.values() if node.life is life)
        actor = f"agent:{node.name}"
        return self._fault.tears(actor, self._numbers[actor])

    def _step(self, actor: str, what: str) -> Step:
        self._numbers[actor] += 1
        step = Step(actor, self._numbers[actor], what)
        if not self._over:
            self.record.steps.append(step)
        return step

    def _kill(self, actor: str) -> None:
        kind, _, name = actor.partition(":")
        if kind == "agent":
            self._cluster.nodes[name].crash_agent()
        else:
            next(replica for replica in self._cluster.replicas if replica.identity == name).kill()

    def _agent(self, node: SimNode, client: Client) -> Agent:
        def trace(step: str) -> None:
            if step == "keep":  # the bytes of a change are laid down before anything else is
                self._eyes.changes(node)

        return real_agent(node, client, trace=trace)

    # --- what was wrong ---

    def problem(self, text: str) -> None:
        if text not in self.record.problems:
            self.record.problems.append(text)
            self._say(f"!!! {text}")

    def _say(self, line: str) -> None:
        self.record.lines.append(f"{asyncio.get_running_loop().time():9.3f}  {line}")

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.getMessage() in ("controller died", "agent ended") and not _killed(error):
            self.problem(f"{record.getMessage()}: {error!r}")

    def listening(self) -> _Listening:
        return _Listening(self)

    async def _at_rest(self) -> None:
        audit = self._cluster.server.audit
        audit.clear()
        await asyncio.sleep(REST)
        for one in audit:
            ours = one.user.startswith(("controller", "agent")) and one.target.kind.plural != "leases"
            if ours and one.method not in ("GET", "WATCH"):
                self.problem(f"not at rest: {one.user}: {one.method} {one.target.kind.plural} {one.target.name}")

    def _count(self, scenario: Scenario) -> None:
        """One restart of containerd for each change, and each phase once for each try."""
        for name, node in self._cluster.nodes.items():
            starts = Counter(start.initiator for start in node.daemon.starts if start.initiator != "boot")
            if starts != {"agent": self._story.restarts}:
                self.problem(f"{name}: containerd was started by {dict(starts)}, by agent {self._story.restarts} asked")
        if self._pods != self._story.pods:
            self.problem(f"{self._pods} phase pods were made, {self._story.pods} are needed")


def _killed(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_killed(one) for one in error.exceptions)
    return isinstance(error, Killed)


class _Listening:
    """The handler hears the log inside the block."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler
        self._log = logging.getLogger("reconciler.sim")

    def __enter__(self) -> None:
        self._log.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self._handler)
