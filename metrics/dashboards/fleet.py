"""The fleet: where the nodes are, how far the rollout is and when it ends, how long the stages take."""

from __future__ import annotations

from metrics.controller import (
    AGENTLESS,
    BUDGET,
    DONE,
    FAILED_NODES,
    HELD,
    NODES,
    PHASE_DURATION,
    READY,
    REPAIRS,
    SPENT,
    STUCK_NODES,
    TOTAL,
    TROUBLED,
    UPDATING,
)
from metrics.dashboards.model import Dashboard, Kind, Panel, Query, Row, Unit, Variable
from metrics.dashboards.promql import RUNTIME, SPARSE, fleet, quantile, risen

_RATE = f"sum by (runtime) (deriv({DONE.name}{RUNTIME}[{SPARSE}])) > 0"
_LEFT = f"({fleet(TOTAL)} - {fleet(DONE)}) / ({_RATE})"
_TROUBLE = ((1, "red"),)

_OVERVIEW = Row(
    "Overview",
    (
        Panel(
            title="Nodes",
            description="Nodes that the rollout is about.",
            kind=Kind.STAT,
            queries=(Query(fleet(TOTAL), "{{runtime}}"),),
            unit=Unit.COUNT,
            base="text",
            width=4,
            height=4,
        ),
        Panel(
            title="Ready",
            description="Share of the nodes that serve the present revision.",
            kind=Kind.STAT,
            queries=(Query(f"{fleet(READY)} / {fleet(TOTAL)}", "{{runtime}}"),),
            unit=Unit.SHARE,
            base="orange",
            thresholds=((1, "green"),),
            width=4,
            height=4,
        ),
        Panel(
            title="Stuck",
            description="Nodes past their deadline: they wait for a signal that does not come.",
            kind=Kind.STAT,
            queries=(Query(fleet(STUCK_NODES), "{{runtime}}"),),
            unit=Unit.COUNT,
            thresholds=_TROUBLE,
            width=4,
            height=4,
        ),
        Panel(
            title="Failed",
            description="Nodes given up on at the present revision.",
            kind=Kind.STAT,
            queries=(Query(fleet(FAILED_NODES), "{{runtime}}"),),
            unit=Unit.COUNT,
            thresholds=_TROUBLE,
            width=4,
            height=4,
        ),
        Panel(
            title="Without agent",
            description="Nodes that take part and have no Ready agent: nothing begins on them.",
            kind=Kind.STAT,
            queries=(Query(fleet(AGENTLESS), "{{runtime}}"),),
            unit=Unit.COUNT,
            thresholds=_TROUBLE,
            width=4,
            height=4,
        ),
        Panel(
            title="Repaired in the last hour",
            description="Times that a ready node had lost its handler and was configured again: somebody else edits.",
            kind=Kind.STAT,
            queries=(Query(fleet(REPAIRS), "{{runtime}}"),),
            unit=Unit.COUNT,
            thresholds=((1, "orange"), (3, "red")),
            width=4,
            height=4,
        ),
        Panel(
            title="Nodes by stage",
            description="Where the nodes are. A stage that grows is where the rollout waits.",
            kind=Kind.STACKED,
            queries=(Query(f"sum by (stage) ({fleet(NODES, 'runtime', 'stage')})", "{{stage}}"),),
            unit=Unit.COUNT,
            width=14,
        ),
        Panel(
            title="Nodes in trouble",
            description="Stuck and failed nodes, and how long each has been in its stage; 50 at most.",
            kind=Kind.TABLE,
            queries=(Query(fleet(TROUBLED, "runtime", "node", "stage", "state")),),
            unit=Unit.SECONDS,
            width=10,
            none="none",
        ),
    ),
)
_ROLLOUT = Row(
    "Rollout",
    (
        Panel(
            title="Progress",
            description="Done: ready at this revision, or clean when the runtime is to go. At work: in a stage.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(fleet(TOTAL), "{{runtime}} all"),
                Query(fleet(DONE), "{{runtime}} done"),
                Query(fleet(UPDATING), "{{runtime}} at work"),
            ),
            unit=Unit.COUNT,
            width=10,
        ),
        Panel(
            title="Error budget",
            description="Nodes that count against the budget, and how many it tolerates; one more halts the rollout.",
            kind=Kind.TIME_SERIES,
            queries=(Query(fleet(SPENT), "{{runtime}} used"), Query(fleet(BUDGET), "{{runtime}} allowed")),
            unit=Unit.COUNT,
            width=8,
        ),
        Panel(
            title="Ends",
            description="When the last node is done if it goes on as in the last 15 minutes.",
            kind=Kind.STAT,
            queries=(Query(f"(time() + {_LEFT}) * 1000", "{{runtime}}"),),
            unit=Unit.MOMENT,
            base="text",
            width=6,
            height=4,
            none="not moving",
        ),
        Panel(
            title="Time left",
            description="What remains, at the pace of the last 15 minutes.",
            kind=Kind.STAT,
            queries=(Query(_LEFT, "{{runtime}}"),),
            unit=Unit.SECONDS,
            base="text",
            width=6,
            height=4,
            none="not moving",
        ),
        Panel(
            title="Held",
            description="Why nothing new starts: stopped, paused, a canary that waits for a person, the error budget, "
            "a problem of the NodeRuntime (its condition Degraded says which).",
            kind=Kind.STATES,
            queries=(Query(fleet(HELD, "runtime", "reason"), "{{runtime}} {{reason}}"),),
            unit=Unit.YES_NO,
            thresholds=((1, "orange"),),
            width=24,
            height=6,
        ),
    ),
)
_PHASES = Row(
    "Stages",
    (
        Panel(
            title="Durations of stages",
            description="How long stages took, all of them; a second band is a second kind of node.",
            kind=Kind.HEAT_MAP,
            queries=(Query(risen(PHASE_DURATION.bucket, "le", where=RUNTIME), "{{le}}"),),
            unit=Unit.SECONDS,
            width=12,
        ),
        Panel(
            title="Stages that ended",
            description="By result; an attempt that is tried again has failed, too.",
            kind=Kind.STACKED,
            queries=(Query(risen(PHASE_DURATION.count, "phase", "result", where=RUNTIME), "{{phase}} {{result}}"),),
            unit=Unit.COUNT,
            width=12,
        ),
        Panel(
            title="Median by stage",
            description="Half of the nodes took less; over 15 minutes.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(
                    quantile(0.5, PHASE_DURATION, "runtime", "phase", where=RUNTIME, over=SPARSE),
                    "{{runtime}} {{phase}}",
                ),
            ),
            unit=Unit.SECONDS,
            width=12,
        ),
        Panel(
            title="95th percentile by stage",
            description="One node in twenty took longer; over 15 minutes. Red: the default deadline of a phase.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(
                    quantile(0.95, PHASE_DURATION, "runtime", "phase", where=RUNTIME, over=SPARSE),
                    "{{runtime}} {{phase}}",
                ),
            ),
            unit=Unit.SECONDS,
            thresholds=((600, "red"),),
            width=12,
        ),
    ),
)
FLEET = Dashboard(
    uid="runtime-reconciler-fleet",
    title="Runtime reconciler / Fleet",
    description="Where every node is, how far the rollout is and when it ends.",
    variables=(Variable("runtime", TOTAL.name, "runtime"),),
    rows=(_OVERVIEW, _ROLLOUT, _PHASES),
)
