"""`reconciler teardown`: before the product itself is removed. The chart's pre-delete hook runs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from reconciler.cli import connection
from reconciler.controller.teardown import NotYet
from reconciler.controller.teardown import teardown as make_way
from reconciler.kube.client import Client


def teardown(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", envvar="POD_NAMESPACE", help="Namespace of controller and agents.")
    ] = connection.NAMESPACE,
    delete: Annotated[bool, typer.Option("--delete", help="Delete all NodeRuntimes.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for NodeRuntimes to go.")] = 280.0,
    keep: Annotated[str, typer.Option(help="Said with a refusal: the command by which the product stays.")] = "",
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
) -> None:
    """Make way for removing the product: wait for NodeRuntimes, end agents and controller, clean the Nodes.

    Refused, with nothing changed, while a NodeRuntime is there that nobody has deleted. Can be run again.
    """

    async def work(client: Client) -> None:
        try:
            await make_way(client, namespace=namespace, delete=delete, timeout=timeout, tell=_tell)
        except NotYet as error:
            raise connection.Refused(f"{error}. To keep the product: {keep}" if keep else str(error)) from error

    connection.run(work, kubeconfig=kubeconfig, context=context)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
