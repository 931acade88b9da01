"""Metrics of talking to the API server: requests, watches, queues, the Lease. The field's names where it has any.

`method` and `code` as in client-go; `resource` is the plural; `name` is the queue's or the Lease's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

PREFIX = "runtime_reconciler"
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
"""Seconds; client-go's."""
QUEUE_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)

REQUESTS = Counter("rest_client_requests", "Requests to the API server.", ["method", "code"])
REQUEST_DURATION = Histogram(
    "rest_client_request_duration_seconds", "Time until the answer was there.", ["method"], buckets=REQUEST_BUCKETS
)
EVENTS = Counter(f"{PREFIX}_watch_events", "Watch events.", ["resource", "type"])
RELISTS = Counter(f"{PREFIX}_watch_relists", "Lists made because a watch could not go on.", ["resource", "reason"])
UNDECODABLE = Counter(f"{PREFIX}_undecodable_objects", "Objects that could not be decoded.", ["resource"])
DEPTH = Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"])
ADDS = Counter("workqueue_adds", "Keys added.", ["name"])
WAITED = Histogram("workqueue_queue_duration_seconds", "Time that a key waited.", ["name"], buckets=QUEUE_BUCKETS)
WORKED = Histogram("workqueue_work_duration_seconds", "Time that a key took.", ["name"], buckets=QUEUE_BUCKETS)
RETRIED = Counter("workqueue_retries", "Keys added again after an error.", ["name"])
RECONCILED = Counter(f"{PREFIX}_reconcile", "Looks at a key, by how they ended.", ["controller", "result"])


class RequestMetrics:
    """What a client counts."""

    def request(self, method: str, status: str, seconds: float) -> None:
        REQUESTS.labels(method, status).inc()
        REQUEST_DURATION.labels(method).observe(seconds)


class WatchMetrics:
    """What an informer counts."""

    def event(self, resource: str, kind: str) -> None:
        EVENTS.labels(resource, kind).inc()

    def relist(self, resource: str, reason: str) -> None:
        RELISTS.labels(resource, reason).inc()

    def undecodable(self, resource: str) -> None:
        UNDECODABLE.labels(resource).inc()


class QueueMetrics:
    """What a work queue counts, and how its workers end."""

    def depth(self, name: str, value: int) -> None:
        DEPTH.labels(name).set(value)

    def added(self, name: str) -> None:
        ADDS.labels(name).inc()

    def waited(self, name: str, seconds: float) -> None:
        WAITED.labels(name).observe(seconds)

    def worked(self, name: str, seconds: float) -> None:
        WORKED.labels(name).observe(seconds)

    def retried(self, name: str) -> None:
        RETRIED.labels(name).inc()

    def outcome(self, name: str, result: str) -> None:
        RECONCILED.labels(name, result).inc()


class LeaderCollector(Collector):
    """Whether this replica holds the Lease, asked when scraped."""

    def __init__(self, lease: str, is_leader: Callable[[], bool]) -> None:
        self._lease = lease
        self._is_leader = is_leader

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "leader_election_master_status", "1 on the replica that holds the Lease, else 0.", labels=["name"]
        )
        family.add_metric([self._lease], float(self._is_leader()))
        yield family
