"""Metrics of the agent. One process is one node, so none carries the node's name."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

PREFIX = "runtime_reconciler"
OUTAGE_BUCKETS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 13, 22, 25, 40, 90, 300)

CLOSED = Counter(f"{PREFIX}_barrier_closed", "Times the barrier closed.", ["reason"])
OUTAGE = Histogram(f"{PREFIX}_containerd_outage_seconds", "Time that containerd did not serve.", buckets=OUTAGE_BUCKETS)
WAIT = Histogram(f"{PREFIX}_barrier_wait_seconds", "Time a call waited at the barrier.", buckets=OUTAGE_BUCKETS)
RETRIES = Counter(f"{PREFIX}_barrier_retries", "Calls tried again.", ["reason"])
TRANSACTIONS = Counter(
    f"{PREFIX}_config_transactions", "Changes of the configuration.", ["operation", "outcome", "reason"]
)
KILLS = Counter(f"{PREFIX}_kill_retries", "Kills that kubelet lost and the agent retried.", ["result"])
RESTARTS = Counter(f"{PREFIX}_containerd_restarts", "Starts of containerd asked for by us.", ["initiator"])


class Metrics:
    """What an agent counts."""

    def closed(self, reason: str) -> None:
        CLOSED.labels(reason).inc()

    def opened(self, seconds: float) -> None:
        OUTAGE.observe(seconds)

    def waited(self, seconds: float) -> None:
        WAIT.observe(seconds)

    def retried(self, reason: str) -> None:
        RETRIES.labels(reason).inc()

    def transaction(self, operation: str, outcome: str, reason: str, outage: float) -> None:
        TRANSACTIONS.labels(operation, outcome, reason).inc()

    def killed(self, result: str) -> None:
        KILLS.labels(result).inc()

    def restarted(self, initiator: str) -> None:
        RESTARTS.labels(initiator).inc()
