"""`deploy/base`: the chart with its default values, a file for each template.

`python -m tests.chart.base` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import paths
from tests.cluster.release import CHART, helm

BASE = paths.PROJECT / "deploy" / "base"
_SOURCE = "---\n# Source: runtime-reconciler/templates/"
_HEADER = "# Made from deploy/chart by `make docs`; change it there.\n"


def template(*argv: str, chart: Path = CHART) -> str:
    """All manifests of a release whose record lies in kube-system."""
    return helm("template", "runtime-reconciler", str(chart), "--namespace=kube-system", *argv)


def files() -> Mapping[str, str]:
    """Name → text, with the reasons that stand beside what they are for. Hooks are Helm's own and left out."""
    found: dict[str, list[str]] = {}
    for document in template("--no-hooks").split(_SOURCE)[1:]:
        name, _, body = document.partition("\n")
        found.setdefault(name, []).append(body.strip() + "\n")
    return {name: _HEADER + "---\n".join(bodies) for name, bodies in sorted(found.items())}


def main() -> int:
    for name, text in files().items():
        (BASE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
