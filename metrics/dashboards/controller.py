"""The controller's own health: who leads, queues, watches, the API server."""

from __future__ import annotations

from metrics.build import INFO
from metrics.controller import FORBIDDEN, NODE_PATCH_DURATION
from metrics.dashboards.model import Dashboard, Kind, Panel, Query, Row, Unit, Variable
from metrics.dashboards.promql import per_second, quantile, risen
from metrics.kube import (
    ADDS,
    DEPTH,
    EVENTS,
    LEADER,
    LEASE,
    LONGEST,
    RECONCILED,
    RELISTS,
    REQUEST_DURATION,
    REQUESTS,
    RETRIED,
    SILENCE,
    UNDECODABLE,
    UNFINISHED,
    WAITED,
    WORKED,
)

_REPLICA = '{instance=~"$instance"}'
_LEASE = f'{{name="{LEASE}",instance=~"$instance"}}'

_LEADING = Row(
    "Leading",
    (
        Panel(
            title="Leaders",
            description="Replicas that hold the Lease: one. None: nothing begins and nothing goes on.",
            kind=Kind.STAT,
            queries=(Query(f"sum({LEADER.name}{_LEASE})", "leaders"),),
            unit=Unit.COUNT,
            base="red",
            thresholds=((1, "green"), (2, "red")),
            width=4,
        ),
        Panel(
            title="Who leads",
            description="The replica that holds the Lease.",
            kind=Kind.STATES,
            queries=(Query(f"max by (instance) ({LEADER.name}{_LEASE})", "{{instance}}"),),
            unit=Unit.YES_NO,
            base="transparent",
            thresholds=((1, "green"),),
            width=14,
        ),
        Panel(
            title="Versions",
            description="Replicas by version; two during an update.",
            kind=Kind.STAT,
            queries=(Query(f"count by (version) ({INFO.name}{_REPLICA})", "{{version}}"),),
            unit=Unit.COUNT,
            base="text",
            width=6,
        ),
    ),
)
_QUEUES = Row(
    "Queues",
    (
        Panel(
            title="Depth",
            description="Keys that wait for a worker. A standby's grows and is not worked on; the leader's goes down.",
            kind=Kind.TIME_SERIES,
            queries=(Query(f"max by (name, instance) ({DEPTH.name}{_REPLICA})", "{{name}} {{instance}}"),),
            unit=Unit.COUNT,
        ),
        Panel(
            title="Latency",
            description="95th percentile of the time that a key waited.",
            kind=Kind.TIME_SERIES,
            queries=(Query(quantile(0.95, WAITED, "name", where=_REPLICA), "{{name}}"),),
            unit=Unit.SECONDS,
            thresholds=((10, "orange"),),
        ),
        Panel(
            title="Work",
            description="95th percentile of the time that a key took.",
            kind=Kind.TIME_SERIES,
            queries=(Query(quantile(0.95, WORKED, "name", where=_REPLICA), "{{name}}"),),
            unit=Unit.SECONDS,
            thresholds=((30, "orange"),),
        ),
        Panel(
            title="Under way",
            description="The key a worker has been at for longest, and the sum of all; a hanging worker lets it grow.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(f"max by (name) ({LONGEST.name}{_REPLICA})", "{{name}} longest"),
                Query(f"sum by (name) ({UNFINISHED.name}{_REPLICA})", "{{name}} sum"),
            ),
            unit=Unit.SECONDS,
            thresholds=((120, "red"),),
        ),
        Panel(
            title="Added and tried again",
            description="Keys added, and keys added again after an error.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(per_second(ADDS, "name", where=_REPLICA), "{{name}} added"),
                Query(f"{per_second(RETRIED, 'name', where=_REPLICA)} or vector(0)", "{{name}} again"),
            ),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Reconciles",
            description="Looks at a key by how they ended.",
            kind=Kind.STACKED,
            queries=(
                Query(per_second(RECONCILED, "controller", "result", where=_REPLICA), "{{controller}} {{result}}"),
            ),
            unit=Unit.PER_SECOND,
        ),
    ),
)
_API = Row(
    "API server",
    (
        Panel(
            title="Watch age",
            description="Time since anything was heard of a resource. Above 70 s the watch is opened again.",
            kind=Kind.TIME_SERIES,
            queries=(Query(f"max by (resource, instance) ({SILENCE.name}{_REPLICA})", "{{resource}} {{instance}}"),),
            unit=Unit.SECONDS,
            thresholds=((120, "red"),),
        ),
        Panel(
            title="Watch events",
            description="By resource and type.",
            kind=Kind.STACKED,
            queries=(Query(per_second(EVENTS, "resource", "type", where=_REPLICA), "{{resource}} {{type}}"),),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="Should be none",
            description="Lists made again after a watch expired, objects that cannot be read, rights that are missing.",
            kind=Kind.TIME_SERIES,
            queries=tuple(
                Query(f"{risen(family, where=where)} or vector(0)", legend)
                for family, where, legend in (
                    (RELISTS, _REPLICA, "lists again"),
                    (UNDECODABLE, _REPLICA, "not decodable"),
                    (FORBIDDEN, _REPLICA, "forbidden"),
                )
            ),
            unit=Unit.COUNT,
            thresholds=((1, "orange"),),
        ),
        Panel(
            title="Latency of requests",
            description="Median and 95th percentile by method.",
            kind=Kind.TIME_SERIES,
            queries=(
                Query(quantile(0.5, REQUEST_DURATION, "method", where=_REPLICA), "{{method}} median"),
                Query(quantile(0.95, REQUEST_DURATION, "method", where=_REPLICA), "{{method}} 95 %"),
            ),
            unit=Unit.SECONDS,
            thresholds=((1, "orange"),),
        ),
        Panel(
            title="Requests",
            description="By method and code.",
            kind=Kind.STACKED,
            queries=(Query(per_second(REQUESTS, "method", "code", where=_REPLICA), "{{method}} {{code}}"),),
            unit=Unit.PER_SECOND,
        ),
        Panel(
            title="PATCH of a Node",
            description="The one write of each transition; 95th percentile.",
            kind=Kind.TIME_SERIES,
            queries=(Query(quantile(0.95, NODE_PATCH_DURATION, where=_REPLICA), "95 %"),),
            unit=Unit.SECONDS,
            thresholds=((1, "orange"),),
        ),
    ),
)
CONTROLLER = Dashboard(
    uid="runtime-reconciler-controller",
    title="Runtime reconciler / Controller",
    description="Who leads, whether the queues move, and how the API server answers.",
    variables=(Variable("instance", LEADER.name, "instance", within=f'{{name="{LEASE}"}}', every=None),),
    rows=(_LEADING, _QUEUES, _API),
)
