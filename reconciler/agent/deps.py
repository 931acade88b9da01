"""What an agent is made of; the simulation hands in others than a real node."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry

from reconciler.api import names
from reconciler.api.clock import Clock
from reconciler.cri.api import Cri
from reconciler.hostconfig import HostConfig, Outcome
from reconciler.kube.client import Client
from reconciler.systemd.api import Systemd

SocketWatch = Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]
"""`async with watch(changed):` calls `changed` whenever the socket may have come or gone."""


class AgentMetrics(Protocol):
    """What an agent counts."""

    def closed(self, reason: str) -> None: ...
    def opened(self, seconds: float) -> None: ...
    def waited(self, seconds: float) -> None: ...
    def retried(self, reason: str) -> None: ...
    def transaction(self, operation: str, outcome: str, reason: str, *, undone: bool) -> None: ...
    def killed(self, result: str) -> None: ...
    def restarted(self, initiator: str) -> None: ...
    def given_up(self, result: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Deps:
    node: str
    client: Client
    cri: Cri
    systemd: Systemd
    host: HostConfig
    clock: Clock
    rng: random.Random
    metrics: AgentMetrics
    watch: SocketWatch | None = None
    boot: str = ""
    """Kernel boot id."""
    own_pod: str = ""
    """UID of the agent's own pod: never stopped."""
    namespace: str = names.NAMESPACE
    unit: str = "containerd.service"
    registry: CollectorRegistry = REGISTRY
    """Where its watches are counted."""
    replaced: Callable[[], None] = lambda: None
    """Called when containerd is of another version than before: what `host` knows of it is out of date."""

    def count(self, operation: str, outcome: Outcome, initiator: str) -> str:
        """Count what one change of the configuration came to, and the restart that `initiator` made; its reason."""
        reason = "" if outcome.reason is None else outcome.reason.value
        self.metrics.transaction(operation, outcome.verdict.value, reason, undone=outcome.undone)
        if outcome.restarted:
            self.metrics.restarted(initiator)
        return reason
