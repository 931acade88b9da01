"""Every dashboard."""

from __future__ import annotations

from metrics.dashboards.controller import CONTROLLER
from metrics.dashboards.fleet import FLEET
from metrics.dashboards.nodes import NODES

DASHBOARDS = (FLEET, NODES, CONTROLLER)
