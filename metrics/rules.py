"""deploy/observability/alerts.yaml, from the alerts: `python -m metrics.rules > deploy/observability/alerts.yaml`.

A rule file of Prometheus; a PrometheusRule has the same under `spec`.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import yaml

from metrics.alerts import ALERTS, Alert

RUNBOOKS = "https://runtime-reconciler.io/docs/runbooks"
"""Where docs/runbooks is served."""
GROUP = "runtime-reconciler"
_HEAD = "# Made by `make docs` from metrics/alerts.py.\n"
_RANGE = re.compile(r"\[(\d+)m\]")
RANGE_MIN = 4
"""Seconds of the shortest range of a scaled rule: it must span two scrapes."""


def document(scale: float = 1.0) -> dict[str, Any]:
    """The rules; `scale` below 1 shortens what they wait for and look back at, for a rehearsal in minutes."""
    return {"groups": [{"name": GROUP, "rules": [_rule(alert, scale) for alert in ALERTS]}]}


def text(scale: float = 1.0) -> str:
    """As YAML."""
    return _HEAD + yaml.safe_dump(document(scale), sort_keys=False, width=110)


def _rule(alert: Alert, scale: float) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr if scale == 1.0 else _RANGE.sub(lambda found: _shorter(found, scale), alert.expr),
        **({"for": f"{round(alert.hold * scale)}s"} if alert.hold else {}),
        "labels": {"severity": str(alert.severity)},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{RUNBOOKS}/{alert.name}.md",
        },
    }


def _shorter(found: re.Match[str], scale: float) -> str:
    return f"[{max(round(int(found[1]) * 60 * scale), RANGE_MIN)}s]"


if __name__ == "__main__":
    sys.stdout.write(text())
