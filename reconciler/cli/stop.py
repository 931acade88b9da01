"""`reconciler stop`: one write, after which nothing new begins anywhere."""

from __future__ import annotations

import getpass
import socket
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from reconciler.api import names
from reconciler.api.clock import SystemClock, rfc3339
from reconciler.cli import connection
from reconciler.cli.connection import Refused
from reconciler.cli.control import Done, DryRun, at_work, some, tell
from reconciler.cli.output import Format, Output
from reconciler.cli.snapshot import leaderless
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, NotFound, TransportError
from reconciler.kube.resources import CONFIGMAPS, NODES
from reconciler.kube.stop import words

Reason = Annotated[str, typer.Option("--reason", "-m", help="Why, for those who find everything stopped.")]


def stop(
    *,
    reason: Reason = "",
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
    namespace: connection.Namespace = connection.NAMESPACE,
) -> None:
    """Stop all rollouts at once, in the middle of them too; `resume` lifts it.

    Within 1 s nothing new begins: no phase pod, no stage, no change of a configuration. What has begun ends: a
    payload that runs, and a change past its first write by proof or undo. Guard and kill retries go on.
    """

    async def work(client: Client) -> Done:
        body = _body(reason)
        where = f"ConfigMap {namespace}/{names.STOP_NAME}"
        try:
            made = await client.create(CONFIGMAPS, body, namespace, rehearse=dry_run)
        except AlreadyExists:
            found = await client.get(CONFIGMAPS, names.STOP_NAME, namespace)
            return Done(command="stop", unchanged=(f"{words(found)} ({where})",), dry_run=dry_run)
        except NotFound as error:
            raise Refused(f"nothing was stopped: {error.message}; name the controller's with --namespace") from error
        following = () if dry_run else tuple([line async for line in _following(client, namespace)])
        return Done(command="stop", changed=(f"{words(made)} ({where})",), next=following, dry_run=dry_run)

    tell(connection.run(work, kubeconfig=kubeconfig, context=context), output)


def _body(reason: str) -> dict[str, Any]:
    data = {
        names.STOP_REASON: reason,
        names.STOP_BY: f"{_user()}@{socket.gethostname()}",
        names.STOP_AT: rfc3339(SystemClock().now()),
    }
    return {"metadata": {"name": names.STOP_NAME}, "data": data}


def _user() -> str:
    try:
        return getpass.getuser()
    except OSError:  # a user id without a name
        return "unknown"


async def _following(client: Client, namespace: str) -> AsyncIterator[str]:
    """It is stopped already: whatever cannot be looked at now is left out."""
    yield "nothing new begins within 1 s; an agent that cannot reach the API server begins nothing either"
    try:
        if busy := at_work((await client.list(NODES))[0]):
            yield f"what has begun ends, on {some(busy)}"
        if nobody := await leaderless(client, namespace, SystemClock().now()):
            yield f"{nobody}; is {namespace} the right --namespace?"
    except (ApiError, TransportError) as error:
        yield f"what is at work cannot be seen: {error}"
    yield "`kubectl reconciler resume` lifts it"
