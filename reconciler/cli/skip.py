"""`reconciler skip NODE`: a deletion no longer waits for a node."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from reconciler.api import names
from reconciler.cli import complete, connection
from reconciler.cli.connection import Refused
from reconciler.cli.control import Done, DryRun, node_named, tell
from reconciler.cli.output import Format, Output
from reconciler.kube.client import Client
from reconciler.kube.resources import NODERUNTIMES, NODES

MEANING = (
    "it counts as clean from now on, and the deletion no longer waits for it",
    "nothing is done on it: what the payload installed and containerd's configuration stay as they are",
    "if it comes back, its agent has our part of the configuration undone; files of the payload stay, because the "
    "revision that could uninstall them is gone with the NodeRuntime",
    "this cannot be taken back once the NodeRuntime is gone",
)

Node = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete.nodes, help="Name of a Node.")]
Runtime = Annotated[
    str, typer.Option("--runtime", autocompletion=complete.runtimes, help="Only this NodeRuntime; else all that wait.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def skip(
    node: Node,
    *,
    runtime: Runtime = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
) -> None:
    """Give NODE up for NodeRuntimes that are being deleted: for machines that do not come back."""

    async def look(client: Client) -> tuple[list[str], list[str]]:
        return await _waiting(client, node, runtime)

    waiting, skipped = connection.run(look, kubeconfig=kubeconfig, context=context)
    if waiting and not dry_run and not yes:
        _ask(node, waiting)

    async def work(client: Client) -> Done:
        if waiting:
            body = {"metadata": {"annotations": {names.skip_annotation(name): "true" for name in waiting}}}
            await client.patch(NODES, node, body, rehearse=dry_run)
        return Done(
            command="skip",
            changed=tuple(f"node {node} is skipped by the deletion of {name}" for name in waiting),
            unchanged=tuple(f"node {node} is skipped by the deletion of {name}" for name in skipped),
            next=MEANING,
            dry_run=dry_run,
        )

    tell(connection.run(work, kubeconfig=kubeconfig, context=context), output)


async def _waiting(client: Client, node: str, runtime: str) -> tuple[list[str], list[str]]:
    """Runtimes whose deletion waits for the node, and those that skip it already. Raises Refused without any."""
    there = (await node_named(client, node)).metadata.annotations
    runtimes = [r for r in (await client.list(NODERUNTIMES))[0] if runtime in ("", r.metadata.name)]
    going = [r.metadata.name for r in runtimes if r.metadata.deletion_timestamp is not None]
    held = sorted(name for name in going if names.state_annotation(name) in there)
    if not held:
        raise Refused(f"no deletion waits for node {node}: {_instead(runtime, going)}")
    skipped = [name for name in held if names.skip_annotation(name) in there]
    return [name for name in held if name not in skipped], skipped


def _instead(runtime: str, going: list[str]) -> str:
    if not going:
        return f"no NodeRuntime {runtime} is being deleted" if runtime else "no NodeRuntime is being deleted"
    return f"nothing of {', '.join(going)} is on it"


def _terminal() -> bool:
    return sys.stdin.isatty()


def _ask(node: str, waiting: list[str]) -> None:
    """Raises typer.Exit: REFUSED for a no, usage where nobody can be asked."""
    if not _terminal():
        raise typer.BadParameter("nobody can be asked here: give --yes", param_hint="--yes")
    for line in (f"node {node} is given up for the deletion of {', '.join(waiting)}:", *MEANING):
        typer.echo(f"  {line}", err=True)
    if not typer.confirm("Give it up?", err=True):
        raise typer.Exit(connection.REFUSED)
