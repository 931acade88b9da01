"""Which scenario has which number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster.lab import Lab, Verdict
from tests.cluster.scenarios import (
    agents,
    conformance,
    controls,
    deletions,
    documents,
    hooks,
    loops,
    machines,
    outages,
    releases,
    rights,
    stopping,
    vendor,
)
from tests.cluster.scenarios.daemons import rows as daemons
from tests.cluster.scenarios.field import rows


@dataclass(frozen=True)
class Scenario:
    number: int
    title: str
    act: Callable[[Lab, Verdict, int], None]
    """The last argument is the number of loops that was asked for."""


SCENARIOS = (
    Scenario(0, "negative controls: the judge can fail", controls.run),
    Scenario(1, "install and uninstall in a loop", loops.run),
    Scenario(2, "a preStop hook that restarts containerd", hooks.run),
    Scenario(3, "containerd stopped while pods are killed", outages.kills),
    Scenario(4, "containerd in the start limit; stopped by an admin", outages.start_limit),
    Scenario(5, "deleted in each stage, in each way", deletions.run),
    Scenario(6, "controllers and agents killed", agents.run),
    Scenario(7, "faults seen in the field", rows.run),
    Scenario(8, "nodes off, rebooted, tainted, made anew", machines.run),
    Scenario(9, "a running pod through an upgrade", machines.upgrade),
    Scenario(10, "a stolen token of an agent", rights.run),
    Scenario(11, "each release of containerd as a node's daemon", daemons.run),
    Scenario(12, "a vendor's script that edits the configuration as text", vendor.run),
    Scenario(13, "installed, upgraded and uninstalled by Helm", releases.run),
    Scenario(14, "every command of the documentation", documents.run),
    Scenario(15, "everything stopped in the middle of a rollout", stopping.run),
    Scenario(16, "API server and kubelets do what the simulated ones are held to", conformance.run),
)
