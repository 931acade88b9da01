"""What a dashboard is made of, and its JSON as Grafana reads it (schema 39: Grafana 10.4 and later)."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = 24
"""Of Grafana's grid."""
SCHEMA = 39
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Kind(enum.StrEnum):
    STAT = "stat"
    TIME_SERIES = "timeseries"
    STACKED = "stacked"
    HEAT_MAP = "heatmap"
    TABLE = "table"
    STATES = "state-timeline"


class Unit(enum.StrEnum):
    """Grafana's names."""

    COUNT = "short"
    SECONDS = "s"
    SHARE = "percentunit"
    PER_SECOND = "ops"
    YES_NO = "bool_yes_no"
    MOMENT = "dateTimeFromNow"
    """Milliseconds since 1970."""


@dataclass(frozen=True)
class Query:
    """`legend` is a template of label names in `{{…}}`."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """`thresholds`: from which value on which colour; below the first it is `base`."""

    title: str
    description: str
    kind: Kind
    queries: Sequence[Query]
    unit: Unit
    base: str = "green"
    thresholds: Sequence[tuple[float, str]] = ()
    width: int = 8
    height: int = 8
    none: str = ""
    """What is shown while there is no data."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """Values of a label that one may choose from."""

    name: str
    family: str
    label: str
    within: str = ""
    """A selector."""
    every: str | None = ".+"
    """What All stands for; None: the values that there are, for labels of other people's series, too."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """`uid` is also its file's name."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]

    def text(self) -> str:
        """Its file."""
        return json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n"

    def document(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["runtime-reconciler"],
            "schemaVersion": SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "utc",
            "templating": {"list": [_datasource(), *map(_variable, self.variables)]},
            "panels": _grid(self.rows),
        }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(it: Variable) -> dict[str, Any]:
    query = f"label_values({it.family}{it.within}, {it.label})"
    return {
        "name": it.name,
        "label": it.name.capitalize(),
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": it.name},
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": it.every,
        "current": {"text": "All", "value": "$__all"},
    }


def _grid(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The panels from left to right, each row below the one before."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        placed.append(_row(row.title, len(placed) + 1, top))
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            position = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            placed.append({"id": len(placed) + 1, "gridPos": position, **_panel(panel)})
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return placed


def _row(title: str, identity: int, top: int) -> dict[str, Any]:
    position = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"id": identity, "type": "row", "title": title, "collapsed": False, "gridPos": position, "panels": []}


def _panel(panel: Panel) -> dict[str, Any]:
    instant = panel.kind in (Kind.STAT, Kind.TABLE)
    return {
        "type": "timeseries" if panel.kind is Kind.STACKED else str(panel.kind),
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [_target(query, chr(ord("A") + n), panel.kind, instant) for n, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        **({"transformations": _TABLE} if panel.kind is Kind.TABLE else {}),
    }


def _target(query: Query, ref: str, kind: Kind, instant: bool) -> dict[str, Any]:
    shape = {Kind.HEAT_MAP: "heatmap", Kind.TABLE: "table"}.get(kind, "time_series")
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": shape,
        "instant": instant,
        "range": not instant,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps = [{"color": panel.base, "value": None}, *({"color": c, "value": v} for v, c in panel.thresholds)]
    custom: dict[str, Any] = {}
    if panel.kind is Kind.STACKED:
        custom = {"stacking": {"mode": "normal"}, "fillOpacity": 40, "lineWidth": 1}
    elif panel.kind is Kind.TIME_SERIES:
        shown = {"thresholdsStyle": {"mode": "line"}} if panel.thresholds else {}
        custom = {"fillOpacity": 5, "lineWidth": 1, "showPoints": "auto", **shown}
    return {
        "unit": str(panel.unit),
        "min": 0,
        "color": {"mode": "thresholds" if panel.kind in (Kind.STAT, Kind.STATES) else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "custom": custom,
        **({"noValue": panel.none} if panel.none else {}),
    }


_GRAPH = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_OPTIONS: dict[Kind, dict[str, Any]] = {
    Kind.STAT: {
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    Kind.TIME_SERIES: _GRAPH,
    Kind.STACKED: _GRAPH,
    Kind.HEAT_MAP: {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "yAxis": {"unit": "s"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": False},
    },
    Kind.TABLE: {"showHeader": True},
    Kind.STATES: {"mergeValues": True, "showValue": "never", "rowHeight": 0.8, "legend": {"showLegend": False}},
}
_TABLE = [{"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True}}}]
