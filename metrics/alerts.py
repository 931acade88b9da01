"""The alerts: what each watches, for how long, and what it says. Each has a runbook of its name and promtool cases.

Expressions are made from the families, so that a name that is changed is changed here, too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from metrics.agent import CRI_MISSING, DOWN, GIVEN_UP, OUTAGE, PUT_BACKS, UNDONE
from metrics.controller import AGENTLESS, BUDGET, DONE, HELD, REPAIRS, SPENT, STUCK_NODES, TOTAL, TROUBLED
from metrics.families import Computed, Count
from metrics.kube import DEPTH, LEADER, LEASE, LONGEST, SILENCE, WORKED

PREFIX = "RuntimeReconciler"
"""Of every alert: names of alerts are one space for a whole Prometheus."""
NOTICED = "15m"
"""How long a thing that has happened once is told of."""
OUTAGE_MAX = 25
"""Seconds: kubelet says NotReady 26 to 40 s after CRI was lost."""
SILENCE_MAX = 120
"""Seconds: a watch that hears nothing for 70 s is opened again, after 30 s at most."""
HANGING = 120
"""Seconds: every request of a reconcile has a deadline below."""


class Severity(enum.StrEnum):
    CRITICAL = "critical"
    """A node or the controller is out of order now: wake somebody."""
    WARNING = "warning"
    """A person must look, in the morning."""
    INFO = "info"
    """Something healed itself; who caused it should be known."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One rule. `hold`: seconds that it must hold before it fires. Texts are templates of Prometheus."""

    name: str
    expr: str
    hold: int
    severity: Severity
    summary: str
    description: str


_AGENT = "{{ with $labels.node }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }}"
"""The node, where the scrape gives its name (docs/metrics.md), else the address of its agent."""


def _fleet(family: Computed) -> str:
    """The leader's word for each runtime; during a change of leader the larger one."""
    return f"max by (runtime) ({family.name})"


def _rose(family: Count, selector: str = "") -> str:
    return f"increase({family.name}{selector}[{NOTICED}]) > 0"


OURS = f'{LEADER.name}{{name="{LEASE}"}}'
"""Other controllers have a Lease of the same metric, and queues; ours are those of the instances that tell of ours."""
_REMAINING = f"{_fleet(TOTAL)} - {_fleet(DONE)} > 0"
_UNHELD = f"max by (runtime) ({HELD.name} == 1)"
_STILL = f"sum by (runtime) (changes({DONE.name}[10m])) == 0"
_BUSY = f"{DEPTH.name} > 0 unless rate({WORKED.count}[5m]) > 0"
_TROUBLED = (
    "{{ range printf `%s{runtime=%%q,state=%%q}` $labels.runtime `%s` | query }}"
    " {{ .Labels.node }} ({{ .Labels.stage }} for {{ .Value | humanizeDuration }}){{ end }}"
)


def _named(state: str) -> str:
    """The nodes in trouble, by name."""
    return _TROUBLED % (TROUBLED.name, state)


ALERTS = (
    Alert(
        name=f"{PREFIX}NodeStuck",
        expr=f"{_fleet(STUCK_NODES)} > 0",
        hold=60,
        severity=Severity.WARNING,
        summary="{{ $labels.runtime }}: {{ $value }} node(s) past their deadline",
        description=f"Stuck:{_named('stuck')}. They wait for a signal that does not come; each counts against the "
        "error budget. `reconciler explain NODE` says which signal.",
    ),
    Alert(
        name=f"{PREFIX}ErrorBudgetExceeded",
        expr=f"{_fleet(SPENT)} > {_fleet(BUDGET)}",
        hold=60,
        severity=Severity.CRITICAL,
        summary="The rollout of {{ $labels.runtime }} is halted: {{ $value }} node(s) in trouble",
        description=f"More nodes are failed or stuck than spec.rollout.errorBudget tolerates; no further node begins. "
        f"Failed:{_named('failed')}. Stuck:{_named('stuck')}.",
    ),
    Alert(
        name=f"{PREFIX}ContainerdNotServing",
        expr=f"{DOWN.name} > {OUTAGE_MAX}",
        hold=0,
        severity=Severity.CRITICAL,
        summary=f"containerd on {_AGENT} has not served for {{{{ $value | humanizeDuration }}}}",
        description="No pod can be started or stopped there, and kubelet says NotReady soon.",
    ),
    Alert(
        name=f"{PREFIX}ContainerdOutageLong",
        expr=f"increase({OUTAGE.count}[{NOTICED}]) - ignoring (le) "
        f'increase({OUTAGE.bucket}{{le="{OUTAGE_MAX}.0"}}[{NOTICED}]) > 0',
        hold=0,
        severity=Severity.WARNING,
        summary=f"containerd on {_AGENT} was gone for more than {OUTAGE_MAX} s",
        description="It serves again. A restart takes a few seconds, an undo 22 s at most.",
    ),
    Alert(
        name=f"{PREFIX}CRIMissing",
        expr=f"{CRI_MISSING.name} == 1",
        hold=30,
        severity=Severity.CRITICAL,
        summary=f"containerd on {_AGENT} runs without its CRI plugin",
        description="Every call says `unknown service runtime.v1.RuntimeService`: its configuration is at fault, and a "
        "restart does not help.",
    ),
    Alert(
        name=f"{PREFIX}ConfigUndone",
        expr=_rose(UNDONE),
        hold=0,
        severity=Severity.WARNING,
        summary=f"{{{{ $labels.operation }}}} on {_AGENT} was proven bad and undone",
        description="containerd did not serve with the new configuration, so the old one was put back. The node is "
        "failed for this revision.",
    ),
    Alert(
        name=f"{PREFIX}ConfigRepaired",
        expr=_rose(PUT_BACKS, '{outcome="changed"}'),
        hold=0,
        severity=Severity.INFO,
        summary=f"The guard on {_AGENT} has put back containerd's last proven configuration",
        description="A payload, or somebody else, left a configuration that would not start. The rejected bytes are "
        "kept on the node; the Event ConfigPutBack names the files.",
    ),
    Alert(
        name=f"{PREFIX}ConfigNotPutBack",
        expr=_rose(PUT_BACKS, '{outcome!="changed"}'),
        hold=0,
        severity=Severity.CRITICAL,
        summary=f"A configuration of containerd on {_AGENT} would not start and could not be put back",
        description="containerd may still run with what it read before: its next restart is an outage. The Event "
        "ConfigNotPutBack or ConfigContested says why.",
    ),
    Alert(
        name=f"{PREFIX}HandlerRepaired",
        expr=f"{_fleet(REPAIRS)} > 0",
        hold=0,
        severity=Severity.INFO,
        summary="{{ $labels.runtime }} was lost on ready nodes and configured again, {{ $value }} times in an hour",
        description="Somebody else changes containerd's configuration on these nodes. After three times in an hour a "
        "node is left alone.",
    ),
    Alert(
        name=f"{PREFIX}ContainerdStartLimitHit",
        expr=_rose(GIVEN_UP),
        hold=0,
        severity=Severity.WARNING,
        summary=f"systemd had given up containerd on {_AGENT}: {{{{ $labels.result }}}}",
        description="revived: the agent has reset and started it. left-failed: it was started three times in ten "
        "minutes and is left alone. config-broken: its configuration must be mended first.",
    ),
    Alert(
        name=f"{PREFIX}AgentMissing",
        expr=f"{_fleet(AGENTLESS)} > 0",
        hold=300,
        severity=Severity.WARNING,
        summary="{{ $labels.runtime }}: {{ $value }} node(s) without a Ready agent",
        description="Nothing begins on them, and nothing that has begun goes on.",
    ),
    Alert(
        name=f"{PREFIX}RolloutNotProgressing",
        expr=f"({_REMAINING}) unless on (runtime) {_UNHELD} and on (runtime) {_STILL}",
        hold=1200,
        severity=Severity.WARNING,
        summary="The rollout of {{ $labels.runtime }} has stood still for half an hour",
        description="{{ $value }} node(s) are not where they should be, nobody holds the rollout, and none gets there.",
    ),
    Alert(
        name=f"{PREFIX}NoLeader",
        expr=f"(sum({OURS}) or vector(0)) == 0",
        hold=60,
        severity=Severity.CRITICAL,
        summary="No controller leads",
        description="Nothing begins and nothing goes on. containerd on the nodes is not touched.",
    ),
    Alert(
        name=f"{PREFIX}WatchStale",
        expr=f"{SILENCE.name} > {SILENCE_MAX}",
        hold=60,
        severity=Severity.WARNING,
        summary="{{ $labels.instance }}: nothing heard of {{ $labels.resource }} for {{ $value | humanizeDuration }}",
        description="It acts on what it saw last. The API server, the way to it, or a right is missing.",
    ),
    Alert(
        name=f"{PREFIX}QueueStuck",
        expr=f"({LONGEST.name} > {HANGING} or ({_BUSY})) and on (instance) {OURS} == 1",
        hold=300,
        severity=Severity.CRITICAL,
        summary="Queue {{ $labels.name }} of {{ $labels.instance }} is stuck",
        description="A worker hangs, or keys wait and none is worked on: nodes do not go on.",
    ),
)
