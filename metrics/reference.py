"""docs/metrics.md, from the metrics themselves: `python -m metrics.reference > docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from metrics import agent, controller, kube

_HEAD = """# Metrics

The controller serves them on port 9440, the agent on 9441, both at `/metrics`. Names and labels are API.
No label carries a node, a pod or an error text. Beside these, `process_*` and `python_*` of the Prometheus client.
This page is made by `make docs`.
"""
_SUBJECTS: tuple[tuple[str, ModuleType], ...] = (("Controller", controller), ("Agent", agent), ("API server", kube))


def page() -> str:
    """The whole page."""
    gauges: dict[ModuleType, tuple[Collector, ...]] = {
        controller: (controller.NodeCollector(dict, dict),),
        kube: (kube.LeaderCollector("", bool),),
    }
    parts = [_HEAD]
    for title, module in _SUBJECTS:
        rows = sorted([*_declared(module), *_collected(gauges.get(module, ()))])
        parts.append(f"\n## {title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n" + "".join(rows))
    return "".join(parts)


def _declared(module: ModuleType) -> Iterator[str]:
    for value in vars(module).values():
        if isinstance(value, MetricWrapperBase):
            for family in value.describe():
                yield _row(family, value._labelnames)


def _collected(collectors: Iterable[Collector]) -> Iterator[str]:
    for collector in collectors:
        for family in collector.collect():
            yield _row(family, getattr(family, "_labelnames", ()))


def _row(family: Metric, labels: Iterable[str]) -> str:
    name = family.name + ("_total" if family.type == "counter" else "")
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
