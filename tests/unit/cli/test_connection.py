"""What every command that needs a cluster does when it has none, may not, or is refused: one line and a status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from reconciler.cli.connection import Refused, run
from reconciler.kube.client import Client
from reconciler.kube.resources import NODES


async def _nodes(client: Client) -> list[str]:
    return [node.metadata.name for node in (await client.list(NODES))[0]]


async def _refuses(client: Client) -> None:
    raise Refused("node node-1: nothing to retry")


def test_the_work_is_done_on_the_cluster_of_the_current_context(served: Any) -> None:
    served.ask(lambda admin: admin.create(NODES, {"metadata": {"name": "node-1"}}))
    assert run(_nodes, kubeconfig=str(served.kubeconfig)) == ["node-1"]


def test_another_context_is_another_cluster(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(_nodes, kubeconfig=str(served.kubeconfig), context="nowhere")
    assert ended.value.exit_code == 2
    told = capsys.readouterr().err
    start = f"reconciler: kubeconfig {served.kubeconfig}, context nowhere: the cluster at http://127.0.0.1:1 does not"
    assert told.startswith(start)
    assert told.count("\n") == 1


def test_a_context_that_is_not_there_is_one_line_and_2(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(_nodes, kubeconfig=str(served.kubeconfig), context="other")
    told = capsys.readouterr().err
    assert (ended.value.exit_code, told.count("\n")) == (2, 1)
    assert "context other cannot be used" in told


def test_no_kubeconfig_is_one_line_and_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(_nodes, kubeconfig=str(tmp_path / "none"))
    assert (ended.value.exit_code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_what_the_command_refuses_is_one_line_and_1(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        run(_refuses, kubeconfig=str(served.kubeconfig))
    assert (ended.value.exit_code, capsys.readouterr().err) == (1, "reconciler: node node-1: nothing to retry\n")


def test_a_right_that_is_missing_is_told_in_the_api_servers_words_and_1(
    served: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    served.server.knobs.rights.take("admin", "list", "nodes")
    with pytest.raises(typer.Exit) as ended:
        run(_nodes, kubeconfig=str(served.kubeconfig))
    words = 'nodes is forbidden: User "admin" cannot list resource "nodes" in API group "" at the cluster scope'
    assert (ended.value.exit_code, capsys.readouterr().err) == (1, f"reconciler: the API server refused: {words}\n")
