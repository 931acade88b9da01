"""The nodes: containerd and the barrier over the fleet, and one node by its name."""

from __future__ import annotations

from metrics.agent import (
    CLOSED,
    CRI_MISSING,
    DOWN,
    GIVEN_UP,
    KILLS,
    OUTAGE,
    PUT_BACKS,
    RESTARTS,
    RETRIES,
    SERVING,
    TRANSACTIONS,
    UNDONE,
    WAIT,
)
from metrics.build import INFO
from metrics.controller import TROUBLED
from metrics.dashboards.model import Dashboard, Kind, Panel, Query, Row, Unit, Variable
from metrics.dashboards.promql import INTERVAL, NODE, SHOWN, SPARSE, fleet, ours, quantile, risen
from metrics.kube import REQUEST_DURATION, REQUESTS, SILENCE

_DURATIONS = ours(f"rate({REQUEST_DURATION.bucket}{NODE}[{SPARSE}])")

_CONTAINERD = Row(
    "containerd",
    (
        Panel(
            title="Serving",
            description="Share of the nodes whose containerd serves CRI now.",
            kind=Kind.STAT,
            queries=(Query(f"avg({SERVING.name}{NODE})", "serving"),),
            unit=Unit.SHARE,
            base="red",
            thresholds=((0.99, "orange"), (1, "green")),
            width=4,
        ),
        Panel(
            title="CRI missing",
            description="Nodes whose containerd runs without its CRI plugin: the configuration is at fault.",
            kind=Kind.STAT,
            queries=(Query(f"sum({CRI_MISSING.name}{NODE})", "nodes"),),
            unit=Unit.COUNT,
            thresholds=((1, "red"),),
            width=4,
        ),
        Panel(
            title="Down for",
            description="How long containerd has not served by now, the 20 longest. Red: kubelet says NotReady soon.",
            kind=Kind.TIME_SERIES,
            queries=(Query(f"topk({SHOWN}, max by (node) ({DOWN.name}{NODE}))", "{{node}}"),),
            unit=Unit.SECONDS,
            thresholds=((25, "red"),),
        ),
        Panel(
            title="Outages",
            description="How long containerd was away, each time that it came back.",
            kind=Kind.HEAT_MAP,
            queries=(Query(risen(OUTAGE.bucket, "le", where=NODE), "{{le}}"),),
            unit=Unit.SECONDS,
        ),
        Panel(
            title="Restarts by initiator",
            description="Starts of containerd that we asked for: for a change, by the guard, to revive it.",
            kind=Kind.STACKED,
            queries=(Query(risen(RESTARTS, "initiator", where=NODE), "{{initiator}}"),),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Changes of the configuration",
            description="By operation, outcome and reason.",
            kind=Kind.STACKED,
            queries=(
                Query(
                    risen(TRANSACTIONS, "operation", "outcome", "reason", where=NODE),
                    "{{operation}} {{outcome}} {{reason}}",
                ),
            ),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Undone, put back, given up",
            description="Changes that were proven bad; what the guard met; containerd that systemd had given up.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(risen(UNDONE, "operation", where=NODE), "undone: {{operation}}"),
                Query(risen(PUT_BACKS, "outcome", where=NODE), "guard: {{outcome}}"),
                Query(risen(GIVEN_UP, "result", where=NODE), "given up: {{result}}"),
            ),
            unit=Unit.COUNT,
            thresholds=((1, "red"),),
        ),
    ),
)
_BARRIER = Row(
    "Barrier",
    (
        Panel(
            title="Closed, by reason",
            description="Times that the barrier closed.",
            kind=Kind.STACKED,
            queries=(Query(risen(CLOSED, "reason", where=NODE), "{{reason}}"),),
            unit=Unit.COUNT,
            width=6,
        ),
        Panel(
            title="Waits",
            description="How long calls waited for containerd; over 15 minutes.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(quantile(0.5, WAIT, where=NODE, over=SPARSE), "median"),
                Query(quantile(0.95, WAIT, where=NODE, over=SPARSE), "95 %"),
            ),
            unit=Unit.SECONDS,
            thresholds=((25, "red"),),
            width=6,
        ),
        Panel(
            title="Calls tried again",
            description="Calls that met an outage and were tried again when it was over.",
            kind=Kind.STACKED,
            queries=(Query(risen(RETRIES, "reason", where=NODE), "{{reason}}"),),
            unit=Unit.COUNT,
            width=6,
        ),
        Panel(
            title="Kills retried",
            description="Kills that kubelet lost in an outage and the agent retried.",
            kind=Kind.STACKED,
            queries=(Query(risen(KILLS, "result", where=NODE), "{{result}}"),),
            unit=Unit.COUNT,
            width=6,
        ),
    ),
)
_DRILL_DOWN = Row(
    "Node by node",
    (
        Panel(
            title="containerd serves",
            description="Whether CRI serves, node by node; at most 20, those that do not first. Choose a node above.",
            kind=Kind.STATES,
            queries=(Query(f"bottomk({SHOWN}, min by (node) ({SERVING.name}{NODE}))", "{{node}}"),),
            unit=Unit.YES_NO,
            base="red",
            thresholds=((1, "green"),),
            width=12,
        ),
        Panel(
            title="In trouble",
            description="How long a node that is stuck or failed has been in its stage.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(
                    fleet(TROUBLED, "node", "runtime", "stage", "state", where=NODE),
                    "{{node}} {{runtime}} {{stage}} {{state}}",
                ),
            ),
            unit=Unit.SECONDS,
            width=12,
            none="not in trouble",
        ),
        Panel(
            title="Watches of the agent",
            description="Time since the agent heard of its Node and pods. Above 70 s the watch is opened again.",
            kind=Kind.TIME_SERIES,
            queries=(Query(f"topk({SHOWN}, max by (node, resource) ({SILENCE.name}{NODE}))", "{{node}} {{resource}}"),),
            unit=Unit.SECONDS,
            thresholds=((120, "red"),),
        ),
        Panel(
            title="Requests of the agent",
            description="To the API server, by method and code.",
            kind=Kind.STACKED,
            queries=(
                Query(
                    f"sum by (method, code) ({ours(f'rate({REQUESTS.name}{NODE}[{INTERVAL}])')})", "{{method}} {{code}}"
                ),
            ),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Latency of the agent's requests",
            description="95th percentile by method; over 15 minutes.",
            kind=Kind.TIME_SERIES,
            queries=(Query(f"histogram_quantile(0.95, sum by (le, method) ({_DURATIONS}))", "{{method}}"),),
            unit=Unit.SECONDS,
            thresholds=((1, "orange"),),
        ),
        Panel(
            title="Versions of agents",
            description="How many agents run which version; two while the DaemonSet is being updated.",
            kind=Kind.STACKED,
            queries=(Query(f"count by (version) ({INFO.name}{NODE})", "{{version}}"),),
            unit=Unit.COUNT,
        ),
    ),
)
NODES = Dashboard(
    uid="runtime-reconciler-nodes",
    title="Runtime reconciler / Nodes",
    description="containerd and the barrier over the fleet, and node by node.",
    variables=(Variable("node", SERVING.name, "node"),),
    rows=(_CONTAINERD, _BARRIER, _DRILL_DOWN),
)
