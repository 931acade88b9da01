"""What a person meets first: one line and exit status 2 when there is no cluster; an agent that stays light."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("aiohttp", "grpc", "kubernetes_asyncio", "typer", "rich")


def _run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME")}
    return subprocess.run(
        [sys.executable, *argv], env={**kept, **env}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_kubeconfig_that_is_not_there_is_one_line_and_2(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    ended = _run("-m", "reconciler", "controller", "--kubeconfig", str(missing))
    advice = "name one with --kubeconfig or $KUBECONFIG"
    assert (ended.returncode, ended.stderr) == (2, f"reconciler: kubeconfig {missing}: no such file; {advice}\n")


def test_no_cluster_at_all_is_one_line_and_2(tmp_path: Path) -> None:
    ended = _run("-m", "reconciler", "controller", HOME=str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.startswith("reconciler: no cluster: ")
    assert ended.stderr.count("\n") == 1


def test_a_broken_kubeconfig_is_one_line_and_2(tmp_path: Path) -> None:
    broken = tmp_path / "config"
    broken.write_text("a: [")
    ended = _run("-m", "reconciler", "controller", "--kubeconfig", str(broken))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"reconciler: kubeconfig {broken} cannot be used: ")
    assert ended.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_one_line_and_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = _run("-m", "reconciler", "simulate", "--nodes", "1", "--port", str(port))
    advice = "Address already in use; choose another --port"
    assert (ended.returncode, ended.stderr) == (2, f"reconciler: cannot listen on 127.0.0.1:{port}: {advice}\n")


@pytest.mark.parametrize("count", ["0", "00%", "-1", "many", "1.5", "²"])
def test_a_simulation_of_no_node_at_once_is_not_begun(count: str) -> None:
    ended = _run("-m", "reconciler", "simulate", "--nodes", "1", f"--max-unavailable={count}")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "neither a count nor a percentage of 1 or more" in " ".join(ended.stderr.replace("│", " ").split())


def test_a_simulation_says_first_where_its_status_page_is() -> None:
    ended = _run("-m", "reconciler", "simulate", "--nodes", "1", "--loops", "1", "--faults", "kill-window")
    first, second = ended.stdout.split("\n")[:2]
    assert re.fullmatch(r"status page: http://127\.0\.0\.1:\d+/status", first)
    assert re.fullmatch(r"metrics:     http://127\.0\.0\.1:\d+/metrics", second)
    assert ended.returncode == 0


def test_an_agent_outside_a_cluster_is_one_line_and_2() -> None:
    ended = _run("-m", "reconciler", "agent", "--node", "a")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1


def test_the_agent_loads_nothing_heavy() -> None:
    code = f"import sys; import reconciler.agent.main; print([m for m in {HEAVY!r} if m in sys.modules])"
    ended = _run("-c", code)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0)


def test_manifests_prints_what_deploy_holds() -> None:
    ended = _run("-m", "reconciler", "manifests")
    assert ended.stdout == (Path(__file__).parents[3] / "deploy/chart/files/crd.yaml").read_text()
