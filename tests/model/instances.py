"""What is explored: how many nodes and runtimes, with which payload, and which events.

Steps of the controller, kubelet and the agent, and changes of the goal, come in every order and any number, unless
`goals` counts them; disturbances of the groups named, as many as `faults` says. The product of two nodes and two
runtimes is whole for one revision and no disturbance, and has one of payloads and outages for three changes of a goal.
All others are explored on one node: what nodes share are the slots, and without `memory` a node's slot comes and goes
whenever `admit` might give or take it, so whatever happens on a node among many happens there, too. With `memory` the
leader's looks are part of the state and `admit` itself decides.

Not explored: two leaders that write at the same time (a Lease ends 3 s after its holder has stopped, and a new leader
is taken to begin when requests of the old one are over), stores that lag by more than the write under way, deselected
nodes, startup taints, canaries and budgets.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.controller import Controller
from tests.model.environment import EVERY, Environment
from tests.model.explore import SETTLES, Explorer, Outcome
from tests.model.real import Payload, Real
from tests.model.rules import Rules
from tests.model.system import Cell, Host, Runtime, System

READY_POSSIBLE = "ready everywhere can be reached"
ABSENT_POSSIBLE = "absent everywhere can be reached"


@dataclass(frozen=True, kw_only=True)
class Instance:
    name: str
    hosts: int = 1
    runtimes: int = 1
    payload: Payload = Payload()
    groups: frozenset[str] = frozenset()
    revisions: tuple[str, ...] = ("r1", "r2")
    slow: bool = False
    memory: bool = False
    faults: int = -1
    goals: int = -1
    limit: int = 3_000_000

    def run(self, wanted: str = "") -> Outcome:
        """`wanted`: a rule with whose first breach it is enough."""
        rules, real = Rules(self.payload), Real(self.payload)
        alone = "crash" not in self.groups
        controller = Controller(real, rules, slow=self.slow, memory=self.memory, alone=alone)
        environment = Environment(self.payload, rules, self.groups, self.revisions)
        explorer = Explorer(self.name, rules, controller, environment, self.limit)
        outcome = explorer.run(self._start(), wanted)
        if outcome.complete and not any(what.startswith(wanted) for what, _ in outcome.breaches if wanted):
            explorer.can_reach(SETTLES, settled, ("progress",))
            explorer.stays(settled)
            if self.goals < 0:
                explorer.can_reach(READY_POSSIBLE, ready_everywhere)
                explorer.can_reach(ABSENT_POSSIBLE, absent_everywhere)
        return outcome

    def _start(self) -> System:
        views = ((None,) * self.runtimes,) * self.hosts if self.memory else ()
        host = Host((Cell(),) * self.runtimes)
        runtime = Runtime()
        return System(
            (host,) * self.hosts, (runtime,) * self.runtimes, views=views, faults=self.faults, goals=self.goals
        )


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


ONE = ("r1",)
SMALL = (
    Instance(name="1 node, 1 runtime: payloads fail", groups=_named("payload"), faults=1, revisions=ONE),
    Instance(name="1 node, 2 runtimes: every change of the goals", runtimes=2, revisions=ONE),
    Instance(
        name="2 nodes, 1 runtime: leaders change, requests fail",
        hosts=2,
        revisions=ONE,
        memory=True,
        groups=_named("crash"),
        faults=1,
        goals=2,
    ),
)
"""Some seconds."""
FOUR_PHASES = Payload(("pre-install", "install", "uninstall", "post-uninstall"))
ALL = (
    *SMALL,
    Instance(name="1 node, 1 runtime: writes arrive late", slow=True),
    Instance(name="1 node, 1 runtime: four phases", payload=FOUR_PHASES),
    Instance(name="1 node, 1 runtime: Reinstall", payload=Payload(reinstall=True)),
    Instance(
        name="1 node, 1 runtime: done by a label",
        payload=Payload(label=True),
        groups=_named("payload"),
        faults=1,
        revisions=ONE,
    ),
    Instance(name="1 node, 1 runtime: the Node goes and comes back", groups=_named("gone"), faults=1),
    Instance(name="1 node, 1 runtime: outages", groups=_named("containerd node agent"), faults=1),
    Instance(name="1 node, 1 runtime: people and the stop", groups=_named("people stop"), goals=4),
    Instance(name="1 node, 1 runtime: handlers, labels, pods", groups=_named("lost users labels deletes"), faults=1),
    Instance(name="1 node, 1 runtime: payloads, deadlines, leaders", groups=_named("payload late crash"), faults=1),
    Instance(name="1 node, 1 runtime: any disturbance", groups=EVERY, faults=1, goals=3, revisions=ONE),
    Instance(
        name="1 node, 1 runtime: pods that use it for ever, whenInUse: Force",
        payload=Payload(force=True),
        groups=_named("users containerd"),
        faults=2,
    ),
    Instance(
        name="1 node, 1 runtime: two disturbances, two changes of the goal or requests",
        groups=_named("payload containerd node agent gone lost late crash labels deletes users stop people"),
        faults=2,
        goals=2,
        revisions=ONE,
    ),
    Instance(
        name="1 node, 2 runtimes: payloads, outages",
        runtimes=2,
        groups=_named("payload containerd"),
        faults=1,
        revisions=ONE,
    ),
    Instance(
        name="2 nodes, 1 runtime: late writes of one leader", hosts=2, memory=True, slow=True, goals=3, revisions=ONE
    ),
    Instance(name="2 nodes, 2 runtimes: every change of the goals", hosts=2, runtimes=2, revisions=ONE),
    Instance(
        name="2 nodes, 2 runtimes: three changes of a goal, payloads and outages",
        hosts=2,
        runtimes=2,
        groups=_named("payload containerd node agent"),
        faults=1,
        goals=3,
        revisions=ONE,
    ),
)


def settled(system: System) -> bool:
    """Every node is where its goal is, or given up on with a reason."""
    return not system.stopped and all(
        host.exists and _settled(host.cells[r], runtime)
        for host in system.hosts
        for r, runtime in enumerate(system.runtimes)
    )


def _settled(cell: Cell, runtime: Runtime) -> bool:
    if cell.pods or cell.write is not None or cell.job is not None or runtime.paused:
        return False
    if not runtime.uid:
        return _clean(cell)
    state = cell.state
    if runtime.deleting or state is None or state.uid != runtime.uid:
        return False
    if state.stage == "failed":
        return state.failed == runtime.revision and state.error != "" and not cell.retry
    back = state.failed == runtime.revision and state.installed != ""
    served = cell.config == state.uid and not cell.lost
    return state.stage == "ready" and served and (state.installed == runtime.revision or back)


def ready_everywhere(system: System) -> bool:
    return all(
        runtime.uid
        and not runtime.deleting
        and (state := host.cells[r].state) is not None
        and (state.stage, state.installed, state.uid) == ("ready", runtime.revision, runtime.uid)
        for host in system.hosts
        for r, runtime in enumerate(system.runtimes)
    )


def absent_everywhere(system: System) -> bool:
    return all(not r.uid for r in system.runtimes) and all(_clean(c) for h in system.hosts for c in h.cells)


def _clean(cell: Cell) -> bool:
    return cell.state is None and not cell.pods and not cell.config and cell.job is None
