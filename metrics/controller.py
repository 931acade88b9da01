"""Metrics of the controller. Phase durations in seconds; labels are bounded by the number of NodeRuntimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

PREFIX = "runtime_reconciler"
PHASE_BUCKETS = (0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600, 1800)

PHASE_DURATION = Histogram(
    f"{PREFIX}_phase_duration_seconds",
    "Time that a node spent in one stage.",
    ["runtime", "phase", "result"],
    buckets=PHASE_BUCKETS,
)
NODE_PATCH_DURATION = Histogram(
    f"{PREFIX}_node_patch_duration_seconds", "Time that the one PATCH of a transition took."
)
STUCK = Counter(f"{PREFIX}_stuck", "Times that a node's deadline passed.", ["runtime", "stage"])
FORBIDDEN = Counter(
    f"{PREFIX}_forbidden",
    "Requests of ours that RBAC refused, by what was being worked on: node, noderuntime, or the plural of a watch.",
    ["where"],
)


class ControllerMetrics:
    """What the controller counts."""

    def phase(self, runtime: str, phase: str, result: str, seconds: float) -> None:
        PHASE_DURATION.labels(runtime, phase, result).observe(seconds)

    def node_patch(self, seconds: float) -> None:
        NODE_PATCH_DURATION.observe(seconds)

    def stuck(self, runtime: str, stage: str) -> None:
        STUCK.labels(runtime, stage).inc()

    def forbidden(self, where: str) -> None:
        FORBIDDEN.labels(where).inc()


class NodeCollector(Collector):
    """Gauges about nodes, computed from the store when scraped."""

    def __init__(
        self,
        census: Callable[[], Mapping[str, Mapping[str, int]]],
        troubled: Callable[[], Mapping[str, tuple[int, int]]],
    ) -> None:
        """`census`: runtime → stage → nodes. `troubled`: runtime → (stuck, failed) nodes."""
        self._census = census
        self._troubled = troubled

    def collect(self) -> Iterator[GaugeMetricFamily]:
        nodes = GaugeMetricFamily(f"{PREFIX}_nodes", "Nodes by stage.", labels=["runtime", "stage"])
        for runtime, stages in self._census().items():
            for stage, count in stages.items():
                nodes.add_metric([runtime, stage], count)
        yield nodes
        stuck = GaugeMetricFamily(f"{PREFIX}_stuck_nodes", "Nodes past their deadline.", labels=["runtime"])
        failed = GaugeMetricFamily(f"{PREFIX}_failed_nodes", "Nodes given up on at this revision.", labels=["runtime"])
        for runtime, (past, lost) in self._troubled().items():
            stuck.add_metric([runtime], past)
            failed.add_metric([runtime], lost)
        yield stuck
        yield failed
