"""`promtool` checks the rules and plays the cases beside this file; installed on Debian when it is not there (root)."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import packages
from tests.cluster.command import run

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "deploy/observability/alerts.yaml"
NEEDED = {"promtool": "prometheus"}

if __name__ == "__main__":
    packages.ensure(NEEDED)
    for arguments in (["check", "rules", str(RULES)], ["test", "rules", *map(str, sorted(HERE.glob("*.yaml")))]):
        print(run(["promtool", *arguments], timeout=120))
