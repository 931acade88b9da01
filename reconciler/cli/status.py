"""`reconciler status [RUNTIME]`: how far every NodeRuntime is, and with a name where each of its nodes is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from reconciler.api.clock import SystemClock
from reconciler.api.overview import TROUBLED_FIRST, NodeRow, Overview, RuntimeRow, Verdict
from reconciler.cli import complete, connection
from reconciler.cli.connection import Refused
from reconciler.cli.output import (
    ALL_WELL,
    IN_PROGRESS,
    IN_TROUBLE,
    Format,
    Output,
    Row,
    Watch,
    age,
    console,
    document,
    exit_of,
    plain,
    rich_table,
    styled,
    warn,
)
from reconciler.cli.snapshot import leaderless, listed, read
from reconciler.cli.watching import watch as keep_watching
from reconciler.kube.client import Client

RUNTIMES = ("RUNTIME", "READY", "UPDATING", "STUCK", "FAILED", "ASIDE", "REVISION", "STATE")
NODES = ("NODE", "STAGE", "STATE", "SINCE", "DEADLINE", "ATTEMPT", "BARRIER", "WAITS FOR")
ORDER = {verdict: place for place, verdict in enumerate(TROUBLED_FIRST)}

Name = Annotated[
    str, typer.Argument(metavar="[RUNTIME]", autocompletion=complete.runtimes, help="Show its nodes, too.")
]


def status(
    runtime: Name = "",
    *,
    output: Output = Format.TEXT,
    watch: Watch = False,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
    namespace: connection.Namespace = connection.NAMESPACE,
) -> None:
    """How far every NodeRuntime is; with RUNTIME also its nodes, those in trouble first.

    Exits with 0 when all is well, 3 in progress, 4 when a node is stuck or failed or nothing can go on by itself,
    1 refused or no such NodeRuntime, 2 usage or no cluster.
    """

    async def once(client: Client) -> int:
        now = SystemClock().now()
        whole = only(read(await listed(client, namespace), now), runtime)
        warn(await leaderless(client, namespace, now))
        if output is not Format.TEXT:
            sys.stdout.write(document(whole, output))
        elif sys.stdout.isatty():
            console().print(shown(whole, runtime))
        else:
            sys.stdout.write(text(whole, runtime))
        return exit_status(whole)

    async def again(client: Client) -> int:
        await keep_watching(
            client,
            namespace,
            output,
            shown=lambda world, whole: shown(only(whole, runtime), runtime),
            told=lambda world, whole: only(whole, runtime),
            rows=lambda whole: [*only(whole, runtime).nodes],
        )
        return ALL_WELL

    raise typer.Exit(connection.run(again if watch else once, kubeconfig=kubeconfig, context=context))


def only(whole: Overview, runtime: str) -> Overview:
    """What of `whole` is of `runtime`, all of it when it is empty. Raises Refused when there is no such NodeRuntime."""
    if not runtime:
        return whole
    runtimes = tuple(row for row in whole.runtimes if row.name == runtime)
    if not runtimes:
        there = ", ".join(row.name for row in whole.runtimes) or "none"
        raise Refused(f"NodeRuntime {runtime} is not there; there are: {there}")
    nodes = tuple(row for row in whole.nodes if row.runtime == runtime)
    return msgspec.structs.replace(whole, runtimes=runtimes, nodes=nodes)


def exit_status(whole: Overview) -> int:
    """For scripts: the worst of all."""
    return max(exit_of(whole.nodes), *(_exit(row) for row in whole.runtimes), ALL_WELL)


def _exit(row: RuntimeRow) -> int:
    if row.problem is not None and not row.updating and (row.ready < row.total or row.deleting):
        return IN_TROUBLE
    return IN_PROGRESS if row.deleting or row.ready < row.total else ALL_WELL


def text(whole: Overview, runtime: str) -> str:
    """For a pipe."""
    if not whole.runtimes:
        return "no NodeRuntime in this cluster\n"
    parts = [plain(RUNTIMES, [_runtime(row) for row in whole.runtimes])]
    if runtime:
        parts.append(plain(NODES, [_node(row, whole.time) for row in ordered(whole.nodes)]))
    stopped = _stopped(whole)
    return "\n".join([f"{stopped}\n", *parts] if stopped else parts)


def shown(whole: Overview, runtime: str) -> RenderableType:
    """For a terminal."""
    if not whole.runtimes:
        return Text("no NodeRuntime in this cluster")
    parts: list[RenderableType] = [rich_table(RUNTIMES, [_runtime(row) for row in whole.runtimes])]
    if runtime:
        parts += ["", rich_table(NODES, [_node(row, whole.time) for row in ordered(whole.nodes)])]
    if stopped := _stopped(whole):
        parts.insert(0, Text(stopped, "bold red"))
    return Group(*parts)


def ordered(nodes: Sequence[NodeRow]) -> list[NodeRow]:
    """Those in trouble first, then by name."""
    return sorted(nodes, key=lambda row: (ORDER[row.verdict], row.node))


def _runtime(row: RuntimeRow) -> Row:
    counts = (str(row.updating), str(row.stuck), str(row.failed), str(row.set_aside))
    return (row.name, f"{row.ready}/{row.total}", *counts, row.revision or "-", _state(row))


def _state(row: RuntimeRow) -> Text:
    """What is to be known of the whole, in few words: what is wrong before what is going on."""
    if row.problem is not None:
        return styled(Verdict.FAILED, f"{row.problem.reason}: {row.problem.message}")
    if row.halted:
        return styled(Verdict.WAITING, f"halted: {row.halted}")
    if row.deleting:
        return styled(Verdict.WORKING, "is being uninstalled")
    if not row.total:
        return styled(Verdict.ABSENT, "no node is selected")
    done = row.ready == row.total
    return styled(Verdict.OK, "ready") if done else styled(Verdict.WORKING, "in progress")


def _node(row: NodeRow, now: datetime) -> Row:
    left = "-" if row.deadline is None else f"in {age(now, row.deadline)}" if row.deadline > now else "over"
    return (
        row.node,
        row.stage,
        styled(row.verdict),
        age(row.since, now),
        left,
        str(row.attempt),
        str(row.barrier),
        row.waits_for + (f" ({row.error.reason})" if row.error is not None else ""),
    )


def _stopped(whole: Overview) -> str:
    if whole.stopped is None:
        return ""
    by = f" by {whole.stopped.by}" if whole.stopped.by else ""
    why = f": {whole.stopped.reason}" if whole.stopped.reason else ""
    return f"everything is stopped{by}{why}; `kubectl reconciler resume` ends it"
