"""Metrics of the controller. Labels are bounded by the number of NodeRuntimes, whatever the number of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from metrics import build, kube
from metrics.families import PREFIX, Computed, Count, Spread

PHASE_BUCKETS = (0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800)
PATCH_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30)
TROUBLED_MAX = 50
"""Nodes with a series of their own; how many there are is told by the counts."""

PHASE_DURATION = Spread(
    f"{PREFIX}_phase_duration_seconds",
    "Time that a node spent in one stage.",
    "seconds",
    ("runtime", "phase", "result"),
    buckets=PHASE_BUCKETS,
)
NODE_PATCH_DURATION = Spread(
    f"{PREFIX}_node_patch_duration_seconds",
    "Time that the one PATCH of a transition took.",
    "seconds",
    buckets=PATCH_BUCKETS,
)
STUCK = Count(f"{PREFIX}_stuck_total", "Times that a node's deadline passed.", "times", ("runtime", "stage"))
FORBIDDEN = Count(
    f"{PREFIX}_forbidden_total",
    "Requests of ours that RBAC refused, by what was being worked on: node, noderuntime, or the plural of a watch.",
    "requests",
    ("where",),
)
NODES = Computed(f"{PREFIX}_nodes", "Nodes by stage.", "nodes", ("runtime", "stage"))
STUCK_NODES = Computed(f"{PREFIX}_stuck_nodes", "Nodes past their deadline.", "nodes", ("runtime",))
FAILED_NODES = Computed(f"{PREFIX}_failed_nodes", "Nodes given up on at this revision.", "nodes", ("runtime",))
REPAIRS = Computed(
    f"{PREFIX}_recent_repairs",
    "Times in the last hour that a node that was ready had lost a handler and was configured again.",
    "times",
    ("runtime",),
)
AGENTLESS = Computed(
    f"{PREFIX}_agentless_nodes", "Nodes that take part and have no Ready agent.", "nodes", ("runtime",)
)
TOTAL = Computed(f"{PREFIX}_rollout_nodes", "Nodes that the rollout is about.", "nodes", ("runtime",))
DONE = Computed(
    f"{PREFIX}_rollout_done_nodes",
    "Nodes that are where they should be: ready at the present revision, or clean when the runtime is to go.",
    "nodes",
    ("runtime",),
)
READY = Computed(f"{PREFIX}_rollout_ready_nodes", "Nodes that serve the present revision.", "nodes", ("runtime",))
UPDATING = Computed(f"{PREFIX}_rollout_updating_nodes", "Nodes that are being worked on.", "nodes", ("runtime",))
HELD = Computed(
    f"{PREFIX}_rollout_held",
    "Whether nothing new starts, and why: `Stopped` (by a person, everything), `Paused`, `CanaryPaused`, "
    "`ErrorBudgetExceeded`, or `Problem` (condition Degraded says which).",
    "0 or 1",
    ("runtime", "reason"),
)
BUDGET = Computed(
    f"{PREFIX}_error_budget_nodes", "Failed and stuck nodes that the rollout tolerates.", "nodes", ("runtime",)
)
SPENT = Computed(
    f"{PREFIX}_error_budget_used_nodes",
    "Nodes that count against the error budget: failed, stuck, or NotReady while at work.",
    "nodes",
    ("runtime",),
)
TROUBLED = Computed(
    f"{PREFIX}_troubled_node_seconds",
    "How long a node that is stuck or failed has been in its stage. At most 50 nodes have one, stuck ones first.",
    "seconds",
    ("runtime", "node", "stage", "state"),
)
HELD_REASONS = ("Stopped", "Paused", "CanaryPaused", "ErrorBudgetExceeded", "Problem")


class ControllerMetrics:
    """What the controller counts."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._phases = PHASE_DURATION.on(registry)
        self._patches = NODE_PATCH_DURATION.on(registry)
        self._stuck = STUCK.on(registry)
        self._forbidden = FORBIDDEN.on(registry)

    def phase(self, runtime: str, phase: str, result: str, seconds: float) -> None:
        self._phases.labels(runtime, phase, result).observe(seconds)

    def node_patch(self, seconds: float) -> None:
        self._patches.observe(seconds)

    def stuck(self, runtime: str, stage: str) -> None:
        self._stuck.labels(runtime, stage).inc()

    def forbidden(self, where: str) -> None:
        self._forbidden.labels(where).inc()


@dataclass(frozen=True, kw_only=True)
class TroubledNode:
    """A node that needs attention."""

    runtime: str
    node: str
    stage: str
    state: str
    """stuck or failed."""
    seconds: float
    """In this stage."""


@dataclass(frozen=True, kw_only=True)
class RuntimeFigures:
    """One NodeRuntime at the moment of a scrape; numbers of nodes."""

    stages: Mapping[str, int]
    total: int
    done: int
    ready: int
    updating: int
    stuck: int
    failed: int
    agentless: int
    repairs: int
    """In the last hour."""
    budget: int
    spent: int
    held: str = ""
    """One of HELD_REASONS; empty while nothing holds the rollout."""


@dataclass(frozen=True, kw_only=True)
class ControllerFigures:
    """What is so at the moment of a scrape."""

    lease: str
    leads: bool
    silence: Mapping[str, float] = field(default_factory=dict)
    """By resource: seconds since its watch was last heard."""
    at_work: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By queue: seconds that each key under way has taken by now."""
    runtimes: Mapping[str, RuntimeFigures] = field(default_factory=dict)
    """Empty on a replica that does not lead: it has not looked at the nodes."""
    troubled: Iterable[TroubledNode] = ()


class ControllerCollector(Collector):
    """Gauges of one replica, read when scraped; `read` gives None while there is none."""

    def __init__(self, read: Callable[[], ControllerFigures | None]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield build.info()
        now = self._read()
        if now is None:
            return
        yield kube.leads(now.lease, now.leads)
        yield kube.silence(now.silence)
        yield from kube.at_work(now.at_work)
        yield from _runtimes(now.runtimes)
        yield _troubled(now.troubled)


def _runtimes(runtimes: Mapping[str, RuntimeFigures]) -> Iterator[GaugeMetricFamily]:
    nodes, held = NODES.gauge(), HELD.gauge()
    for runtime, now in runtimes.items():
        for stage, count in now.stages.items():
            nodes.add_metric([runtime, stage], count)
        for reason in HELD_REASONS:
            held.add_metric([runtime, reason], float(now.held == reason))
    yield nodes
    yield held
    for family, field_name in _COUNTS:
        gauge = family.gauge()
        for runtime, now in runtimes.items():
            gauge.add_metric([runtime], getattr(now, field_name))
        yield gauge


_COUNTS = (
    (TOTAL, "total"),
    (DONE, "done"),
    (READY, "ready"),
    (UPDATING, "updating"),
    (STUCK_NODES, "stuck"),
    (FAILED_NODES, "failed"),
    (AGENTLESS, "agentless"),
    (REPAIRS, "repairs"),
    (BUDGET, "budget"),
    (SPENT, "spent"),
)
"""Families of one number for each NodeRuntime, and the field of RuntimeFigures that holds it."""


def _troubled(nodes: Iterable[TroubledNode]) -> GaugeMetricFamily:
    family = TROUBLED.gauge()
    for it in nsmallest(TROUBLED_MAX, nodes, key=lambda n: (n.state != "stuck", n.runtime, n.node)):
        family.add_metric([it.runtime, it.node, it.stage, it.state], it.seconds)
    return family
