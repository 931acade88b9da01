"""What happened in a run, a line for each thing that a reader has to know; and the figures of it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from reconciler.api import names
from reconciler.sim.cluster import Cluster

if TYPE_CHECKING:
    from tests.soak.playing import Outcome


class Timeline:
    """Collects while the cluster runs; `end` writes the figures into the outcome."""

    def __init__(self, cluster: Cluster, outcome: Outcome) -> None:
        self._cluster = cluster
        self._outcome = outcome

    def fault(self, line: str) -> None:
        """`NAME: what was done`."""
        self._outcome.faults[line.partition(":")[0]] += 1
        self.say(f"! {line}")

    def say(self, line: str) -> None:
        self._outcome.timeline.append(f"{asyncio.get_running_loop().time():10.3f}  {line}")

    def end(self) -> None:
        cluster, outcome = self._cluster, self._outcome
        outcome.seconds = asyncio.get_running_loop().time()
        nodes = cluster.nodes.values()
        outcome.restarts = sum(1 for node in nodes for start in node.daemon.starts if start.initiator != "boot")
        outcome.digest = _digest(cluster)


def _digest(cluster: Cluster) -> str:
    found = hashlib.sha256()
    for a in cluster.server.audit:
        found.update(f"{a.time:.6f} {a.user} {a.method} {a.target.kind.plural}/{a.target.name} {a.status}\n".encode())
    for node in cluster.nodes.values():
        for start in node.daemon.starts:
            found.update(f"{start.time:.6f} {node.name} {start.initiator} {start.error}\n".encode())
    return found.hexdigest()[:16]


STAGE = names.STATE_ANNOTATION_PREFIX
