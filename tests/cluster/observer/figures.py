"""Where the time goes: seconds per stage from the audit log, and what the agents themselves count.

Figures for the report only; nothing here is judged, and the agents' counts are their own word.
"""

from __future__ import annotations

from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import product
from tests.cluster.command import CommandFailed, run
from tests.cluster.node import Node
from tests.cluster.observer import audit

_STAGE = "stage.runtime-reconciler.io/"
_COUNTED = {
    "runtime_reconciler_kill_retries_total": "kill retries",
    "runtime_reconciler_barrier_wait_seconds_count": "waits at the barrier",
    "runtime_reconciler_barrier_wait_seconds_sum": "seconds waited at the barrier",
}


def stage_seconds(mark: int) -> dict[str, list[float]]:
    """How long nodes were in each stage, by the writes of its label since `mark`; stages still open are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    entered: dict[tuple[str, str], tuple[str, float]] = {}
    for write in audit.writes(mark):
        labels = ((write.body or {}).get("metadata") or {}).get("labels") if isinstance(write.body, dict) else None
        for key, stage in (labels or {}).items():
            if write.code != 200 or not key.startswith(_STAGE):
                continue
            before = entered.pop((write.name, key), None)
            if before is not None:
                found[before[0]].append(round(write.at - before[1], 2))
            if stage:
                entered[write.name, key] = (stage, write.at)
    return dict(found)


def agents(nodes: list[Node]) -> dict[str, float]:
    """The agents' counters, summed over the nodes; an agent that does not answer counts nothing."""
    total: dict[str, float] = dict.fromkeys(_COUNTED.values(), 0.0)
    for node in nodes:
        for name, value in _scraped(node):
            if name in _COUNTED:
                total[_COUNTED[name]] += value
    return total


def _scraped(node: Node) -> list[tuple[str, float]]:
    try:
        address = product.agent_pod(node)["status"]["podIP"]
        url = f"http://{address}:9441/metrics"
        text = run(["nsenter", "-t", str(node.leader()), "-n", "curl", "-sS", "-m", "3", url])
    except (CommandFailed, LookupError, KeyError):
        return []
    return [(s.name, s.value) for family in text_string_to_metric_families(text) for s in family.samples]
