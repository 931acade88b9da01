"""The suite against a real API server, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from reconciler.api import crd

HERE = Path(__file__).parent
LIMIT = 600
"""Seconds for all of it on a busy machine; a minute on one at rest."""
_SIMULATED = "*/test_the_simulated_*.py"
_UNENDED = "ignore::pytest.PytestUnraisableExceptionWarning"
"""A TLS connection that was closed is still saying goodbye when its test's event loop ends."""


def definition() -> str:
    """Our CRD, as JSON."""
    return json.dumps(crd.definition())


def run(
    *, api: str, authority: Path, token: str, etcd: str, more: Sequence[str] = (), report: Path | None = None
) -> int:
    """pytest's exit code. `etcd` is the address of the server's etcd: history is compacted there."""
    environment = {
        "CONFORMANCE_API": api,
        "CONFORMANCE_CA": str(authority),
        "CONFORMANCE_TOKEN": token,
        "CONFORMANCE_ETCD": etcd,
    }
    argv = [
        sys.executable,
        "-m",
        "pytest",
        str(HERE),
        "-W",
        _UNENDED,
        "-p",
        "no:cacheprovider",
        f"--ignore-glob={_SIMULATED}",
        *more,
    ]
    if report is not None:
        argv.append(f"--junit-xml={report}")
    return subprocess.run(
        argv, env={**os.environ, **environment}, cwd=HERE.parent.parent, timeout=LIMIT, check=False
    ).returncode
