"""What commands that change something share: their options, what they look at, and how they say what they did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
import typer

from reconciler.api import names
from reconciler.api.meta import Node
from reconciler.api.node import REST
from reconciler.api.noderuntime import NodeRuntime
from reconciler.cli.connection import Refused
from reconciler.cli.output import Format, document
from reconciler.controller.world import states
from reconciler.kube.client import Client
from reconciler.kube.errors import NotFound
from reconciler.kube.resources import CONFIGMAPS, NODERUNTIMES, NODES
from reconciler.kube.stop import words

NAMED = 5
"""Nodes that are named; of more only the number."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Have the API server check it, and change nothing.")]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a command came to. Every field is always there in JSON."""

    command: str
    changed: tuple[str, ...] = ()
    """One line for each object; empty when everything was so already."""
    unchanged: tuple[str, ...] = ()
    """What was so already."""
    next: tuple[str, ...] = ()
    """What happens now, and what does not."""
    dry_run: bool = msgspec.field(default=False, name="dryRun")


def tell(done: Done, form: Format) -> None:
    """On stdout."""
    typer.echo(_text(done) if form is Format.TEXT else document(done, form), nl=False)


def _text(done: Done) -> str:
    would = "would change: " if done.dry_run else ""
    lines = [*(would + line for line in done.changed), *(f"unchanged: {line}" for line in done.unchanged)]
    lines += [f"  {line}" for line in done.next]
    if done.dry_run:
        lines.append("  nothing was changed (--dry-run)")
    return "".join(f"{line}\n" for line in lines)


async def runtime_named(client: Client, name: str) -> NodeRuntime:
    """Raises Refused when it is not there."""
    try:
        return await client.get(NODERUNTIMES, name)
    except NotFound as error:
        there = ", ".join(sorted(r.metadata.name for r in (await client.list(NODERUNTIMES))[0]))
        raise Refused(f"NodeRuntime {name} is not there; there is {there or 'none'}") from error


async def node_named(client: Client, name: str) -> Node:
    """Raises Refused when it is not there."""
    try:
        return await client.get(NODES, name)
    except NotFound as error:
        raise Refused(f"node {name} is not there; see `kubectl get nodes`") from error


async def still_stopped(client: Client, namespace: str) -> str:
    """Who has stopped everything, and how it ends; empty when nothing is stopped."""
    try:
        found = await client.get(CONFIGMAPS, names.STOP_NAME, namespace)
    except NotFound:
        return ""
    return f"{words(found)}: nothing of it begins before `kubectl reconciler resume`"


def at_work(nodes: Iterable[Node], runtime: str = "") -> list[str]:
    """`node (runtime: stage)` of what has begun and not ended."""
    return sorted(
        f"{node.metadata.name} ({name}: {state.stage})"
        for node in nodes
        for name, state in states(node).items()
        if state is not None and state.stage not in REST and runtime in ("", name)
    )


def some(what: list[str]) -> str:
    """The first few of them."""
    return ", ".join(what[:NAMED]) + (f" and {len(what) - NAMED} more" if len(what) > NAMED else "")
