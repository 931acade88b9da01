"""The Tab key: names of nodes and NodeRuntimes of the cluster that is meant, in a shell and behind kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.lab import stuck

CODE = "from reconciler.cli.main import app; app(prog_name='reconciler')"
KUBECTL = "from reconciler.__main__ import complete; complete()"


def run(code: str, *words: str, **env: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    assert ended.stderr == ""
    return ended.stdout.split()


def in_bash(line: str, kubeconfig: Path) -> list[str]:
    """What Tab offers at the end of `line`."""
    place = len(line.split(" ")) - 1
    env = {"_RECONCILER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(place)}
    return run(CODE, **env, KUBECONFIG=str(kubeconfig))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("reconciler sta", ["status"]),
        ("reconciler status ", ["kata"]),
        ("reconciler explain node-", ["node-1", "node-2", "node-3", "node-4", "node-5"]),
        ("reconciler explain node-1 --runtime k", ["kata"]),
        ("reconciler explain nobody", []),
    ],
)
def test_names_are_completed(served: Any, line: str, offered: list[str]) -> None:
    served.ask(stuck)
    assert in_bash(line, served.kubeconfig) == offered


def test_the_cluster_that_the_options_name_is_asked(served: Any, tmp_path: Path) -> None:
    served.ask(stuck)
    other = tmp_path / "none"
    assert in_bash("reconciler status ", other) == []
    assert in_bash(f"reconciler status --kubeconfig {served.kubeconfig} ", other) == ["kata"]
    assert in_bash(f"reconciler status --context nowhere --kubeconfig {served.kubeconfig} ", other) == []


def test_kubectl_gets_the_names_and_is_told_to_offer_no_files(served: Any) -> None:
    served.ask(stuck)
    env = {"KUBECONFIG": str(served.kubeconfig)}
    assert run(KUBECTL, "explain", "node-2", **env) == ["node-2", ":4"]
    assert run(KUBECTL, "status", "", **env) == ["kata", ":4"]
