"""What a metric is: its name, labels and meaning are said once, apart from the process that counts it.

One process may hold several registries (an embedded cluster has one for each of its agents), so a family is made
on a registry when it is first asked for there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics import MetricWrapperBase

PREFIX = "runtime_reconciler"

disable_created_metrics()  # type: ignore[no-untyped-call]  # one more series a counter, which nobody asks for

W = TypeVar("W", bound=MetricWrapperBase)
_made: WeakKeyDictionary[CollectorRegistry, dict[str, MetricWrapperBase]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Family:
    """One name. `unit` is what one of it is: seconds, nodes, 0 or 1 …"""

    kind: ClassVar[str]

    name: str
    help: str
    unit: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """Names that a query may use."""
        return (self.name,)


@dataclass(frozen=True)
class Count(Family):
    """A counter; its name ends in `_total`."""

    kind = "counter"

    def on(self, registry: CollectorRegistry) -> Counter:
        return _once(self, registry, Counter(self.name, self.help, self.labels, registry=None))


@dataclass(frozen=True)
class Level(Family):
    """A gauge that is set when what it shows changes."""

    kind = "gauge"

    def on(self, registry: CollectorRegistry) -> Gauge:
        return _once(self, registry, Gauge(self.name, self.help, self.labels, registry=None))


@dataclass(frozen=True)
class Computed(Family):
    """A gauge that is computed when it is scraped."""

    kind = "gauge"

    def gauge(self) -> GaugeMetricFamily:
        """An empty family, to be filled by a collector."""
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)

    def of(self, value: float) -> GaugeMetricFamily:
        """The family of a gauge without labels."""
        return GaugeMetricFamily(self.name, self.help, value=value)


@dataclass(frozen=True)
class Spread(Family):
    """A histogram. `buckets`: upper bounds in the family's unit."""

    kind = "histogram"

    buckets: Sequence[float] = ()

    @property
    def bucket(self) -> str:
        return f"{self.name}_bucket"

    @property
    def count(self) -> str:
        return f"{self.name}_count"

    @property
    def sum(self) -> str:
        return f"{self.name}_sum"

    @property
    def series(self) -> tuple[str, ...]:
        return (self.bucket, self.count, self.sum)

    def on(self, registry: CollectorRegistry) -> Histogram:
        return _once(self, registry, Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=None))


def _once(family: Family, registry: CollectorRegistry, fresh: W) -> W:
    """The metric that `registry` has already, else `fresh`, which is registered."""
    held = _made.setdefault(registry, {})
    if family.name not in held:
        held[family.name] = fresh
        registry.register(fresh)
    found = held[family.name]
    assert isinstance(found, type(fresh))
    return found
