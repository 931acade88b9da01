"""Where the time goes: seconds per stage from the audit log, what the agents themselves count, what they cost at rest.

Figures for the report only; nothing here is judged, and the agents' counts are their own word.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import product
from tests.cluster.command import CommandFailed, run
from tests.cluster.node import Node
from tests.cluster.observer import audit, processes

_STAGE = "stage.runtime-reconciler.io/"
_COUNTED = {
    "runtime_reconciler_kill_retries_total": "kill retries",
    "runtime_reconciler_barrier_wait_seconds_count": "waits at the barrier",
    "runtime_reconciler_barrier_wait_seconds_sum": "seconds waited at the barrier",
}
_MB = 1024 * 1024
_TICKS = os.sysconf("SC_CLK_TCK")


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


def resident(nodes: list[Node]) -> dict[str, float]:
    """Resident memory of each node's agent, in MB (2^20 bytes)."""
    pages = {node.name: int(Path(f"/proc/{_agent(node)}/statm").read_text().split()[1]) for node in nodes}
    return {name: round(number * os.sysconf("SC_PAGE_SIZE") / _MB, 1) for name, number in pages.items()}


def cpu(nodes: list[Node], seconds: float) -> dict[str, float]:
    """CPU that each node's agent uses within `seconds` from now on, in percent of a core."""
    agents = {node.name: _agent(node) for node in nodes}
    before, began = {name: _cpu_seconds(pid) for name, pid in agents.items()}, time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {name: round((_cpu_seconds(pid) - before[name]) / took * 100, 3) for name, pid in agents.items()}


def _agent(node: Node) -> int:
    """Process id, here, of the agent. Raises LookupError when none is ready."""
    uid = product.agent_pod(node)["metadata"]["uid"]
    return next(process.pid for process in processes.of_pod(uid) if "reconciler" in process.command)


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process (fields 14 and 15 of its stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
