"""`reconciler explain NODE`: what a node is doing, what it waits for, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from reconciler.api.clock import SystemClock
from reconciler.api.meta import Condition
from reconciler.api.overview import Explanation, NodeRow, Overview, PhasePod, Verdict
from reconciler.cli import complete, connection
from reconciler.cli.connection import Refused
from reconciler.cli.output import STYLES, Format, Output, Watch, age, console, document, exit_of, warn
from reconciler.cli.snapshot import leaderless, listed, node_of, read
from reconciler.cli.watching import watch as keep_watching
from reconciler.controller.explanation import explain as explained
from reconciler.controller.node import users
from reconciler.controller.outlooks import look
from reconciler.controller.overview import overview
from reconciler.controller.sentences import at
from reconciler.controller.world import World, states
from reconciler.kube.client import Client
from reconciler.phases.decision import Signal

WIDTH = 12
"""Characters of the column of names."""

Node = Annotated[str, typer.Argument(autocompletion=complete.nodes)]
Runtime = Annotated[str, typer.Option("--runtime", autocompletion=complete.runtimes, help="Only this NodeRuntime.")]
Line = tuple[str, str]


def explain(
    node: Node,
    *,
    runtime: Runtime = "",
    output: Output = Format.TEXT,
    watch: Watch = False,
    kubeconfig: connection.Kubeconfig = "",
    context: connection.Context = "",
    namespace: connection.Namespace = connection.NAMESPACE,
) -> None:
    """What NODE waits for: its stage, since when, what was last seen, what happens next and when, what to do.

    Exits with 0 when all is well, 3 in progress, 4 stuck or failed, 1 when there is no such node or NodeRuntime,
    2 usage or no cluster.
    """

    def of(world: World, whole: Overview) -> Explanation:
        return only(explained(world, whole, node_of(world, node), whole.time), runtime)

    async def once(client: Client) -> int:
        now = SystemClock().now()
        world = await listed(client, namespace)
        node_of(world, node)
        read(world, now)
        await _ask_for_users(client, world, node, now)
        found = of(world, overview(world, now))
        warn(await leaderless(client, namespace, now))
        if output is not Format.TEXT:
            sys.stdout.write(document(found, output))
        elif sys.stdout.isatty():
            console().print(shown(found))
        else:
            sys.stdout.write(text(found))
        return exit_of(found.runtimes)

    async def again(client: Client) -> int:
        await keep_watching(
            client,
            namespace,
            output,
            shown=lambda world, whole: shown(of(world, whole)),
            told=of,
            rows=lambda whole: [r for r in whole.nodes if r.node == node and runtime in ("", r.runtime)],
        )
        return 0

    raise typer.Exit(connection.run(again if watch else once, kubeconfig=kubeconfig, context=context))


async def _ask_for_users(client: Client, world: World, where: str, now: datetime) -> None:
    """Where the answer depends on the pods that use a handler, ask for them, as the controller does."""
    node = node_of(world, where)
    for name, by_node in [*world.rows.items()]:
        row = by_node.get(where)
        asks = row is not None and (row.reason == "AskUse" or row.awaits == Signal.USERS_GONE)
        if asks:
            in_use = await users(client, world, node, name, states(node).get(name))
            look(world, node, name, now, in_use=in_use)


def only(found: Explanation, runtime: str) -> Explanation:
    """What of `found` is of `runtime`. Raises Refused when there is no such NodeRuntime."""
    if not runtime:
        return found
    rows = tuple(row for row in found.runtimes if row.runtime == runtime)
    if not rows and runtime not in found.unselected:
        there = ", ".join(sorted({*found.unselected, *(row.runtime for row in found.runtimes)})) or "none"
        raise Refused(f"NodeRuntime {runtime} is not there; there are: {there}")
    pods = tuple(pod for pod in found.pods if pod.runtime == runtime)
    unselected = {name: why for name, why in found.unselected.items() if name == runtime}
    return msgspec.structs.replace(found, runtimes=rows, pods=pods, unselected=unselected)


def text(found: Explanation) -> str:
    """For a pipe."""
    return "".join(f"{name + ':':<{WIDTH}}{value}\n" if name else f"{value}\n" for name, value in _lines(found))


def shown(found: Explanation) -> Text:
    """The same for a terminal: headings in the colour of their verdict."""
    colours = {_heading(row): STYLES[row.verdict] for row in found.runtimes}
    whole = Text()
    for name, value in _lines(found):
        whole.append(f"{name + ':':<{WIDTH}}" if name else "", "bold")
        whole.append(f"{value}\n", "" if name else colours.get(value, "bold"))
    return whole


def _lines(found: Explanation) -> Iterator[Line]:
    """Name and value of each line; a heading has no name."""
    if found.stopped is not None:
        yield "", "everything is stopped: no new step begins; `kubectl reconciler resume` ends it"
        yield "", ""
    for row in found.runtimes:
        yield "", _heading(row)
        yield from _row(row, found)
        yield "", ""
    if not found.runtimes:
        yield "", f"{found.node}: nothing of {', '.join(found.unselected) or 'any NodeRuntime'} is to be on this node"
    for name, why in found.unselected.items():
        yield "", f"{name}: {why}"
    if not found.runtimes or found.unselected:
        yield "", ""
    yield from _node(found)


def _heading(row: NodeRow) -> str:
    """What is the matter, in one line."""
    alone = row.verdict in (Verdict.OK, Verdict.ABSENT) or row.verdict == row.stage
    how = row.stage if alone else f"{row.verdict} in {row.stage}"
    return f"{row.node}, {row.runtime}: {how}"


def _row(row: NodeRow, found: Explanation) -> Iterator[Line]:
    since = "" if row.since is None else f", since {at(row.since)} ({age(row.since, found.time)})"
    yield "Stage", f"{row.stage}, attempt {row.attempt}{since}"
    yield "Waits for", row.waits_for
    yield "Last seen", row.last_seen
    yield "Next", row.next
    if row.advice:
        yield "Do", row.advice
    if row.error is not None:
        yield "Error", f"{row.error.reason}: {row.error.message}"
    if row.revision:
        yield "Revision", row.revision
    for pod in found.pods:
        if pod.runtime == row.runtime:
            yield "Pod", _pod(pod)
    if (answer := found.agent.work.get(row.runtime)) is not None:
        why = ": ".join(part for part in (answer.reason, answer.message) if part)
        done = f"{answer.result} on {answer.stage}, attempt {answer.attempt}, revision {answer.revision}"
        yield "Agent said", done + (f": {why}" if why else "")


def _pod(pod: PhasePod) -> str:
    why = ": ".join(part for part in (pod.reason, pod.message) if part)
    going = ", being deleted" if pod.deleting else ""
    ended = ", nothing of it runs in CRI" if pod.ended else ""
    return f"{pod.name} ({pod.stage}, attempt {pod.attempt}): {pod.state}{going}{ended}" + (f": {why}" if why else "")


def _node(found: Explanation) -> Iterator[Line]:
    yield "", f"Node {found.node}"
    yield "Ready", _condition(found.ready)
    yield "Serving", _condition(found.serving)
    if found.contested is not None and found.contested.status == "True":
        yield "Contested", _condition(found.contested)
    version = f"containerd {found.agent.containerd}" if found.agent.containerd else "containerd"
    yield "Reported", f"{version} with handlers {', '.join(found.agent.handlers) or 'none'}"
    yield "Agent", f"{found.agent.pod} is Ready" if found.agent.ready else found.agent.why
    if found.agent.journal:
        yield "Journal", f"the host's journal holds {', '.join(sorted(found.agent.journal))}"


def _condition(found: Condition | None) -> str:
    if found is None:
        return "nobody has said so"
    why = ": ".join(part for part in (found.reason, found.message) if part)
    return f"{found.status} since {at(found.last_transition_time)}" + (f": {why}" if why else "")
