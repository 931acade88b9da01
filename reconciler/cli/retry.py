"""`reconciler retry NODE`: another try of what is failed or stuck on a node."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.api.overview import NodeRow, Overview, Verdict
from reconciler.cli import complete, connection
from reconciler.cli.connection import Refused
from reconciler.cli.control import Done, DryRun, still_stopped, tell
from reconciler.cli.output import Format, Output
from reconciler.cli.snapshot import listed, node_of, read
from reconciler.kube.client import Client
from reconciler.kube.resources import NODES
from reconciler.phases.decision import Signal

Node = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete.nodes, help="Name of a Node.")]
Runtime = Annotated[
    str, typer.Option("--runtime", autocompletion=complete.runtimes, help="Only this NodeRuntime; else all in trouble.")
]


def retry(
    node: Node,
    *,
    runtime: Runtime = "",
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
    namespace: connection.Namespace = connection.NAMESPACE,
) -> None:
    """Try again what is failed or stuck on NODE, once what was in its way is mended (`explain NODE` names it)."""

    async def work(client: Client) -> Done:
        world = await listed(client, namespace)
        there = node_of(world, node).metadata.annotations
        whole = read(world, SystemClock().now())
        here = [row for row in whole.nodes if row.node == node and runtime in ("", row.runtime)]
        asked = [row for row in here if names.retry_annotation(row.runtime) in there]
        fresh = [row for row in _in_trouble(here) if row not in asked]
        if not fresh and not asked:
            raise Refused(f"node {node}: nothing to try again: {_instead(here, node, runtime)}")
        if fresh:
            body = {"metadata": {"annotations": {names.retry_annotation(row.runtime): "true" for row in fresh}}}
            await client.patch(NODES, node, body, rehearse=dry_run)
        return Done(
            command="retry",
            changed=tuple(f"node {node}: {row.runtime} is tried again: {_why(row)}" for row in fresh),
            unchanged=tuple(f"node {node}: {row.runtime} is to be tried again: {row.next}" for row in asked),
            next=(*(_following(whole, row) for row in fresh), *filter(None, [await still_stopped(client, namespace)])),
            dry_run=dry_run,
        )

    tell(connection.run(work, kubeconfig=kubeconfig, context=context), output)


def _in_trouble(here: list[NodeRow]) -> list[NodeRow]:
    """Failed or stuck, or between two tries: a person need not wait for the next one."""
    found = (row for row in here if row.verdict in (Verdict.STUCK, Verdict.FAILED) or row.awaits == Signal.BACKOFF)
    return [row for row in found if row.awaits != Signal.CONTROLLER and row.reason != "StateUnreadable"]


def _instead(here: list[NodeRow], node: str, runtime: str) -> str:
    if not here:
        return f"NodeRuntime {runtime} is not on it" if runtime else "no NodeRuntime is on it"
    told = ", ".join(f"{row.runtime} is {row.stage} ({row.verdict})" for row in here)
    return f"{told}; see `kubectl reconciler explain {node}`"


def _why(row: NodeRow) -> str:
    error = row.error
    return f"{row.verdict} in {row.stage}" + (f": {error.reason}: {error.message}" if error is not None else "")


def _following(whole: Overview, row: NodeRow) -> str:
    """A node that rests needs a slot; one at work has its own."""
    owner = next((runtime for runtime in whole.runtimes if runtime.name == row.runtime), None)
    if row.awaits == Signal.AGENT:
        return f"{row.runtime}: it goes on when the node has a ready agent"
    if row.verdict is not Verdict.FAILED:
        return f"{row.runtime}: attempt {row.attempt + 1} of {row.stage} begins"
    if owner is not None and owner.paused:
        return f"{row.runtime}: paused, so not before `kubectl reconciler resume {row.runtime}`"
    return f"{row.runtime}: the install begins anew when its turn comes (a slot of rollout.maxUnavailable)"
