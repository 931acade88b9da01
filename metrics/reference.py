"""docs/metrics.md, from the metrics themselves: `python -m metrics.reference > docs/metrics.md`."""

from __future__ import annotations

import sys

from metrics.catalog import SUBJECTS, declared
from metrics.families import Family

_HEAD = """# Metrics

The controller serves them on port 9440, the agent on 9441, both at `/metrics`. Names and labels are API.
No label carries a pod or an error text. A node's name is in one metric only,
`runtime_reconciler_troubled_node_seconds`, and there in at most 50 series, whatever the size of the fleet: a controller
of 5,000 nodes and three runtimes serves fewer than 1,500 series, an agent in daily use fewer than 130. Beside these,
`process_*` and `python_*` of the Prometheus client.
Agents do not say where they run: a scrape configuration adds the label `node` to their series (of a pod:
`__meta_kubernetes_pod_node_name`), as the PodMonitor in `deploy/` does; dashboards and alerts use it.
Gauges about nodes are computed from the store when scraped, and served by the replica that leads.
This page is made by `make docs`.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, module in SUBJECTS:
        rows = "".join(_row(family) for family in declared(module))
        parts.append(f"\n## {title}\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n{rows}")
    return "".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {family.unit} | {labels} | {family.help} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
