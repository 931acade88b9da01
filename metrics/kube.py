"""Metrics of talking to the API server: requests, watches, queues, the Lease. The field's names where it has any.

`method` and `code` as in client-go; `resource` is the plural; `name` is the queue's or the Lease's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from metrics.families import PREFIX, Computed, Count, Level, Spread

REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
"""Seconds; client-go's."""
LEASE = "runtime-reconciler-controller"
"""Value of `name` of our Lease: a Prometheus sees those of other controllers, too."""
QUEUE_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)

REQUESTS = Count("rest_client_requests_total", "Requests to the API server.", "requests", ("method", "code"))
REQUEST_DURATION = Spread(
    "rest_client_request_duration_seconds",
    "Time until the answer was there.",
    "seconds",
    ("method",),
    buckets=REQUEST_BUCKETS,
)
EVENTS = Count(f"{PREFIX}_watch_events_total", "Watch events.", "events", ("resource", "type"))
RELISTS = Count(
    f"{PREFIX}_watch_relists_total", "Lists made because a watch could not go on.", "lists", ("resource", "reason")
)
UNDECODABLE = Count(
    f"{PREFIX}_undecodable_objects_total", "Objects that could not be decoded.", "objects", ("resource",)
)
SILENCE = Computed(
    f"{PREFIX}_watch_age_seconds",
    "Time since anything was heard of a resource: a list, an event or a bookmark. A good watch stays below 70 s.",
    "seconds",
    ("resource",),
)
DEPTH = Level("workqueue_depth", "Keys that wait for a worker.", "keys", ("name",))
ADDS = Count("workqueue_adds_total", "Keys added.", "keys", ("name",))
WAITED = Spread(
    "workqueue_queue_duration_seconds", "Time that a key waited.", "seconds", ("name",), buckets=QUEUE_BUCKETS
)
WORKED = Spread("workqueue_work_duration_seconds", "Time that a key took.", "seconds", ("name",), buckets=QUEUE_BUCKETS)
RETRIED = Count("workqueue_retries_total", "Keys added again after an error.", "keys", ("name",))
UNFINISHED = Computed(
    "workqueue_unfinished_work_seconds",
    "Time that the keys under way have taken by now, summed; it grows while a worker hangs.",
    "seconds",
    ("name",),
)
LONGEST = Computed(
    "workqueue_longest_running_processor_seconds",
    "Time that the key under way for the longest has taken by now.",
    "seconds",
    ("name",),
)
RECONCILED = Count(f"{PREFIX}_reconcile_total", "Looks at a key, by how they ended.", "looks", ("controller", "result"))
LEADER = Computed(
    "leader_election_master_status", "1 on the replica that holds the Lease, else 0.", "0 or 1", ("name",)
)


class RequestMetrics:
    """What a client counts."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._requests = REQUESTS.on(registry)
        self._durations = REQUEST_DURATION.on(registry)

    def request(self, method: str, status: str, seconds: float) -> None:
        self._requests.labels(method, status).inc()
        self._durations.labels(method).observe(seconds)


class WatchMetrics:
    """What an informer counts."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._events = EVENTS.on(registry)
        self._relists = RELISTS.on(registry)
        self._undecodable = UNDECODABLE.on(registry)

    def event(self, resource: str, kind: str) -> None:
        self._events.labels(resource, kind).inc()

    def relist(self, resource: str, reason: str) -> None:
        self._relists.labels(resource, reason).inc()

    def undecodable(self, resource: str) -> None:
        self._undecodable.labels(resource).inc()


class QueueMetrics:
    """What a work queue counts, and how its workers end."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._depth = DEPTH.on(registry)
        self._adds = ADDS.on(registry)
        self._waited = WAITED.on(registry)
        self._worked = WORKED.on(registry)
        self._retried = RETRIED.on(registry)
        self._reconciled = RECONCILED.on(registry)

    def depth(self, name: str, value: int) -> None:
        self._depth.labels(name).set(value)

    def added(self, name: str) -> None:
        self._adds.labels(name).inc()

    def waited(self, name: str, seconds: float) -> None:
        self._waited.labels(name).observe(seconds)

    def worked(self, name: str, seconds: float) -> None:
        self._worked.labels(name).observe(seconds)

    def retried(self, name: str) -> None:
        self._retried.labels(name).inc()

    def outcome(self, name: str, result: str) -> None:
        self._reconciled.labels(name, result).inc()


def silence(ages: Mapping[str, float]) -> GaugeMetricFamily:
    """`ages`: resource → seconds since its watch was last heard."""
    family = SILENCE.gauge()
    for resource, seconds in ages.items():
        family.add_metric([resource], seconds)
    return family


def at_work(queues: Mapping[str, Sequence[float]]) -> Iterator[GaugeMetricFamily]:
    """`queues`: name → seconds that each of its keys under way has taken by now."""
    unfinished, longest = UNFINISHED.gauge(), LONGEST.gauge()
    for name, times in queues.items():
        unfinished.add_metric([name], sum(times))
        longest.add_metric([name], max(times, default=0.0))
    yield unfinished
    yield longest


def leads(lease: str, holds: bool) -> GaugeMetricFamily:
    family = LEADER.gauge()
    family.add_metric([lease], float(holds))
    return family
