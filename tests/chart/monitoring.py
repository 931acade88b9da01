"""The kinds of the Prometheus operator, from its source, so that a monitor or rule is judged by their real schema."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster import paths
from tests.cluster.command import CommandFailed, run

_MODULE = "github.com/prometheus-operator/prometheus-operator"
_VERSION = "v0.85.0"
_SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
_PLURALS = ("podmonitors", "servicemonitors", "prometheusrules")


def definitions() -> list[Path]:
    """Files of the CustomResourceDefinitions, fetched once and kept by version."""
    folder = paths.binaries("prometheus-operator", _VERSION)
    if not folder.exists():
        _fetch(folder)
    return [folder / _file(plural) for plural in _PLURALS]


def _fetch(folder: Path) -> None:
    if shutil.which("go") is None:
        raise CommandFailed(f"{folder} is not there and cannot be fetched: no `go` on PATH (1.24 or later)")
    found = json.loads(run(["go", "mod", "download", "-json", f"{_MODULE}@{_VERSION}"], cwd=Path("/"), timeout=300))
    if found["Sum"] != _SUM:
        raise CommandFailed(f"the source of {_MODULE} {_VERSION} is not the pinned one: {found['Sum']}")
    unfinished = folder.with_suffix(".unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    for plural in _PLURALS:
        shutil.copyfile(
            Path(found["Dir"], "example/prometheus-operator-crd", _file(plural)), unfinished / _file(plural)
        )
    unfinished.rename(folder)


def _file(plural: str) -> str:
    return f"monitoring.coreos.com_{plural}.yaml"
