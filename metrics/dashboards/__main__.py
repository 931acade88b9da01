"""Write every dashboard into the directory that is given."""

from __future__ import annotations

import sys
from pathlib import Path

from metrics.dashboards.catalog import DASHBOARDS

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    for dashboard in DASHBOARDS:
        (directory / f"{dashboard.uid}.json").write_text(dashboard.text())
