"""helm, and the project's chart."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import binaries, paths
from tests.cluster.command import run

CHART = paths.PROJECT / "deploy" / "chart"


def helm(*argv: str, config: Path | None = None, timeout: float = 60) -> str:
    """Output of helm against the cluster of `config`, or of none. Raises CommandFailed with what it said."""
    binaries.helm()
    return run([paths.HELM_BINARY, *argv], env={"KUBECONFIG": str(config or "/dev/null")}, timeout=timeout)


def said(*argv: str, config: Path, timeout: float = 60) -> str:
    """All that a person sees on a terminal, whether it succeeds or not."""
    binaries.helm()
    words: list[str | Path] = ["/bin/sh", "-c", 'exec "$0" "$@" 2>&1', paths.HELM_BINARY, *argv]
    return run(words, env={"KUBECONFIG": str(config)}, timeout=timeout, check=False)
