"""`reconciler resume [RUNTIME]`: lift the stop of everything, or the pause of one NodeRuntime."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.api import names
from reconciler.api.noderuntime import NodeRuntime
from reconciler.cli import complete, connection
from reconciler.cli.connection import Refused
from reconciler.cli.control import Done, DryRun, runtime_named, some, still_stopped, tell
from reconciler.cli.output import Format, Output
from reconciler.kube.client import Client
from reconciler.kube.errors import Conflict, NotFound
from reconciler.kube.resources import CONFIGMAPS, NODERUNTIMES
from reconciler.kube.stop import words

Name = Annotated[
    str, typer.Argument(metavar="[RUNTIME]", autocompletion=complete.runtimes, help="End its pause, and no stop.")
]


def resume(
    runtime: Name = "",
    *,
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
    namespace: connection.Namespace = connection.NAMESPACE,
) -> None:
    """Lift what `stop` did; with RUNTIME, what `pause RUNTIME` did."""

    async def work(client: Client) -> Done:
        if runtime:
            return await _unpause(client, await runtime_named(client, runtime), namespace, dry_run=dry_run)
        return await _lift(client, namespace, dry_run=dry_run)

    tell(connection.run(work, kubeconfig=kubeconfig, context=context), output)


async def _unpause(client: Client, runtime: NodeRuntime, namespace: str, *, dry_run: bool) -> Done:
    name = runtime.metadata.name
    stopped = await still_stopped(client, namespace)
    further = (stopped,) if stopped else ()
    if not runtime.spec.paused:
        return Done(command="resume", unchanged=(f"NodeRuntime {name} is not paused",), next=further, dry_run=dry_run)
    await client.patch(NODERUNTIMES, name, {"spec": {"paused": False}}, rehearse=dry_run)
    following = "its deletion goes on" if runtime.metadata.deletion_timestamp else "its rollout goes on"
    return Done(
        command="resume",
        changed=(f"NodeRuntime {name} is not paused any more",),
        next=further or (following,),
        dry_run=dry_run,
    )


async def _lift(client: Client, namespace: str, *, dry_run: bool) -> Done:
    """Raises Refused when somebody stops everything anew meanwhile: that was not what was looked at."""
    paused = sorted(r.metadata.name for r in (await client.list(NODERUNTIMES))[0] if r.spec.paused)
    further = (f"still paused: {some(paused)}; `kubectl reconciler resume RUNTIME` ends that",) if paused else ()
    try:
        found = await client.get(CONFIGMAPS, names.STOP_NAME, namespace)
        await client.delete(CONFIGMAPS, names.STOP_NAME, namespace, uid=found.metadata.uid, rehearse=dry_run)
    except NotFound:
        nothing = f"nothing is stopped (no ConfigMap {namespace}/{names.STOP_NAME})"
        return Done(command="resume", unchanged=(nothing,), next=further, dry_run=dry_run)
    except Conflict as error:
        raise Refused(
            "not lifted: somebody has stopped everything anew meanwhile; see `kubectl reconciler status`"
        ) from error
    return Done(
        command="resume",
        changed=(f"nothing is stopped any more; before, {words(found)}",),
        next=("the controller goes on at once, agents within 10 s; deadlines stood still meanwhile", *further),
        dry_run=dry_run,
    )
