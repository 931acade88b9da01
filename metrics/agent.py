"""Metrics of the agent. One process is one node, so none carries the node's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from metrics import build, kube
from metrics.families import PREFIX, Computed, Count, Spread

OUTAGE_BUCKETS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 13, 22, 25, 40, 90, 300)
"""22 s: an undo is to be over. 25 s: kubelet is about to say NotReady (measured 26 to 40)."""

SERVING = Computed(f"{PREFIX}_containerd_serving", "Whether containerd's CRI serves.", "0 or 1")
DOWN = Computed(
    f"{PREFIX}_containerd_down_seconds", "How long containerd has not served by now; 0 while it serves.", "seconds"
)
CRI_MISSING = Computed(
    f"{PREFIX}_cri_missing", "Whether containerd runs without its CRI plugin; the condition says why.", "0 or 1"
)
CLOSED = Count(f"{PREFIX}_barrier_closed_total", "Times the barrier closed.", "times", ("reason",))
OUTAGE = Spread(
    f"{PREFIX}_containerd_outage_seconds", "Time that containerd did not serve.", "seconds", buckets=OUTAGE_BUCKETS
)
WAIT = Spread(f"{PREFIX}_barrier_wait_seconds", "Time a call waited at the barrier.", "seconds", buckets=OUTAGE_BUCKETS)
RETRIES = Count(f"{PREFIX}_barrier_retries_total", "Calls tried again.", "calls", ("reason",))
TRANSACTIONS = Count(
    f"{PREFIX}_config_transactions_total",
    "Changes of the configuration: `configure`, `unconfigure`, `put back` (the guard's), `recover` (what a killed "
    "agent left in the journal).",
    "changes",
    ("operation", "outcome", "reason"),
)
UNDONE = Count(
    f"{PREFIX}_config_undone_total",
    "Changes of the configuration that were made, proven bad and taken back; each is told once more, with its reason, "
    "as a transaction.",
    "changes",
    ("operation",),
)
PUT_BACKS = Count(
    f"{PREFIX}_guard_put_backs_total",
    "Times that the guard met a configuration that would not start, by outcome: `changed` put back and serving, "
    "`broken` put back and not serving, `refused` left as it was.",
    "times",
    ("outcome",),
)
KILLS = Count(f"{PREFIX}_kill_retries_total", "Kills that kubelet lost and the agent retried.", "kills", ("result",))
RESTARTS = Count(
    f"{PREFIX}_containerd_restarts_total",
    "Starts of containerd asked for by us: for a change (`agent`), by the guard, or to revive it.",
    "starts",
    ("initiator",),
)
GIVEN_UP = Count(
    f"{PREFIX}_containerd_given_up_total",
    "Looks at a containerd that systemd had given up (start limit), by what came of it: `revived`, `left-failed` after "
    "our own limit of starts, `config-broken` where a start cannot help.",
    "looks",
    ("result",),
)
OPERATIONS = ("configure", "unconfigure", "put back", "recover")
INITIATORS = ("agent", "guard", "revive")


class Metrics:
    """What an agent counts. What an alert watches begins at 0: the rise of a series that was not there is not seen."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._closed = CLOSED.on(registry)
        self._outage = OUTAGE.on(registry)
        self._wait = WAIT.on(registry)
        self._retries = RETRIES.on(registry)
        self._transactions = TRANSACTIONS.on(registry)
        self._undone = UNDONE.on(registry)
        self._kills = KILLS.on(registry)
        self._restarts = RESTARTS.on(registry)
        self._given_up = GIVEN_UP.on(registry)
        self._put_backs = PUT_BACKS.on(registry)
        self._retries.labels("outage")
        for result in ("stopped", "failed"):
            self._kills.labels(result)
        for operation in OPERATIONS:
            self._undone.labels(operation)
        for initiator in INITIATORS:
            self._restarts.labels(initiator)
        for result in ("revived", "left-failed", "config-broken"):
            self._given_up.labels(result)
        for outcome in ("changed", "broken", "refused"):
            self._put_backs.labels(outcome)

    def closed(self, reason: str) -> None:
        self._closed.labels(reason).inc()

    def opened(self, seconds: float) -> None:
        self._outage.observe(seconds)

    def waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def retried(self, reason: str) -> None:
        self._retries.labels(reason).inc()

    def transaction(self, operation: str, outcome: str, reason: str, *, undone: bool) -> None:
        self._transactions.labels(operation, outcome, reason).inc()
        if undone:
            self._undone.labels(operation).inc()
        if operation == "put back":
            self._put_backs.labels(outcome).inc()

    def killed(self, result: str) -> None:
        self._kills.labels(result).inc()

    def restarted(self, initiator: str) -> None:
        self._restarts.labels(initiator).inc()

    def given_up(self, result: str) -> None:
        self._given_up.labels(result).inc()


@dataclass(frozen=True, kw_only=True)
class AgentFigures:
    """What is so at the moment of a scrape."""

    serving: bool
    down: float
    """Seconds that containerd has not served by now; 0 while it serves."""
    cri_missing: bool
    silence: Mapping[str, float] = field(default_factory=dict)
    """By resource: seconds since its watch was last heard."""


class AgentCollector(Collector):
    """Gauges of an agent, read when scraped; `read` gives None while there is no agent."""

    def __init__(self, read: Callable[[], AgentFigures | None]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield build.info()
        now = self._read()
        if now is None:
            return
        yield SERVING.of(float(now.serving))
        yield DOWN.of(now.down)
        yield CRI_MISSING.of(float(now.cri_missing))
        yield kube.silence(now.silence)
