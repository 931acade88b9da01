"""`reconciler pause RUNTIME`: nothing new of one NodeRuntime begins."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.cli import complete, connection
from reconciler.cli.control import Done, DryRun, at_work, runtime_named, some, tell
from reconciler.cli.output import Format, Output
from reconciler.kube.client import Client
from reconciler.kube.resources import NODERUNTIMES, NODES

Name = Annotated[str, typer.Argument(metavar="RUNTIME", autocompletion=complete.runtimes, help="A NodeRuntime.")]


def pause(
    runtime: Name,
    *,
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
) -> None:
    """Begin nothing new of RUNTIME on any node, its deletion included; `resume RUNTIME` ends it.

    A node that is at work goes on to the end of its rollout; `stop` holds between two steps, too.
    """

    async def work(client: Client) -> Done:
        found = await runtime_named(client, runtime)
        if found.spec.paused:
            return Done(command="pause", unchanged=(f"NodeRuntime {runtime} is paused",), dry_run=dry_run)
        await client.patch(NODERUNTIMES, runtime, {"spec": {"paused": True}}, rehearse=dry_run)
        busy = at_work((await client.list(NODES))[0], runtime)
        going = f"what has begun goes on to its end, on {some(busy)}" if busy else "no node is at work"
        held = "its deletion waits, too" if found.metadata.deletion_timestamp else "no further node begins"
        return Done(
            command="pause",
            changed=(f"NodeRuntime {runtime} is paused",),
            next=(held, going, f"`kubectl reconciler resume {runtime}` ends it"),
            dry_run=dry_run,
        )

    tell(connection.run(work, kubeconfig=kubeconfig, context=context), output)
