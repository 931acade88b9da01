"""The live view of a simulated cluster: every node's stage and barrier, and what the run has come to so far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reconciler.agent import Agent
from reconciler.api import names
from reconciler.barrier.barrier import State
from reconciler.sim import kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.containerd import Phase
from reconciler.sim.faults import Injector
from reconciler.sim.invariants import Observer
from reconciler.sim.kinds import Object
from reconciler.sim.loops import RUNTIME, Loops, Summary
from reconciler.sim.node import SimNode

REFRESH = 0.2
"""Seconds."""
STYLES = {"ready": "green", "absent": "dim", "failed": "bold red"}
CONTAINERD = {
    Phase.SERVING: Text("serving", "green"),
    Phase.STARTING: Text("starting", "yellow"),
    Phase.WITHOUT_CRI: Text("no CRI", "bold red"),
    Phase.DOWN: Text("down", "bold red"),
}


async def show(cluster: Cluster, loops: Loops, total: int, console: Console) -> None:
    """Draw until cancelled."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            loops.count()
            live.update(screen(cluster, loops, total), refresh=True)
            await asyncio.sleep(REFRESH)


def screen(cluster: Cluster, loops: Loops, total: int) -> RenderableType:
    """One picture."""
    leader = cluster.leader
    title = Text.assemble(
        ("runtime-reconciler simulate  ", "bold"),
        f"loop {loops.loop}/{total}  ",
        (loops.step, "cyan"),
        f"  leader: {leader.identity if leader is not None else 'none'}",
    )
    table = Table(expand=False)
    for column in ("node", "stage", "containerd", "barrier", "phase pods", "restarts", "outages", "kill retries"):
        table.add_column(column)
    for node in cluster.nodes.values():
        table.add_row(*_row(cluster, node))
    return Group(title, table, Text(_totals(loops.summary), "dim"))


def _row(cluster: Cluster, node: SimNode) -> Iterator[RenderableType]:
    record = cluster.server.store.get(kinds.NODES, ("", node.name))
    obj: Object = {"metadata": {}} if record is None else record.object
    stage = (obj["metadata"].get("labels") or {}).get(names.stage_label(RUNTIME), "absent")
    yield node.name
    yield Text(stage, STYLES.get(stage, "cyan"))
    yield Text("hangs", "bold red") if node.daemon.hang else CONTAINERD[node.daemon.phase]
    yield _barrier(node.agent)
    yield ", ".join(_pods(cluster, node.name))
    yield str(sum(1 for start in node.daemon.starts if start.initiator != "boot"))
    yield str(len(node.daemon.outages))
    yield str(node.stops)


def _barrier(agent: object) -> Text:
    """The agent's own: nothing is started or killed while it is closed."""
    if not isinstance(agent, Agent):
        return Text("no agent", "dim")
    if agent.barrier.state is State.OPEN:
        return Text("open", "green")
    return Text(f"{agent.barrier.state.value}: {agent.barrier.reason}", "bold yellow")


def _pods(cluster: Cluster, node: str) -> Iterator[str]:
    for _, record in cluster.server.store.all(kinds.PODS):
        meta = record.object["metadata"]
        labels = meta.get("labels") or {}
        if labels.get(names.COMPONENT_LABEL) != names.COMPONENT_PHASE or record.object["spec"].get("nodeName") != node:
            continue
        phase = (record.object.get("status") or {}).get("phase", "Pending")
        yield f"{labels.get(names.PHASE_LABEL)} {'Terminating' if 'deletionTimestamp' in meta else phase}"


def _totals(summary: Summary) -> str:
    restarts = ", ".join(f"{count} by {who}" for who, count in sorted(summary.restarts.items())) or "none"
    return (
        f"restarts: {restarts}; outages: {summary.outages} (longest {summary.longest_outage:.1f} s); "
        f"kills that hit one: {summary.failed_kills}; kill retries: {summary.kill_retries}; "
        f"longest wait of a Terminating pod: {summary.longest_wait:.1f} s"
    )


def result(loops: Loops, injector: Injector, observer: Observer) -> RenderableType:
    """The summary at the end of a run."""
    summary = loops.summary
    table = Table(title="summary", show_header=False)
    for name, value in _figures(summary, injector):
        table.add_row(name, value)
    problems = [Text(str(line), "bold red") for line in (*summary.problems, *observer.broken)]
    verdict = Text("nothing was left behind", "bold green") if not problems else Text("NOT clean", "bold red")
    return Group(table, *problems, verdict)


def _figures(summary: Summary, injector: Injector) -> Iterator[tuple[str, str]]:
    yield "loops", str(len(summary.uninstalls))
    yield "install, seconds", _span(summary.installs)
    yield "uninstall, seconds", _span(summary.uninstalls)
    yield "containerd restarts", ", ".join(f"{n} by {who}" for who, n in sorted(summary.restarts.items())) or "none"
    yield "faults caused", ", ".join(f"{n} {name}" for name, n in sorted(injector.caused.items())) or "none"
    yield "outages survived", f"{summary.outages}, longest {summary.longest_outage:.1f} s"
    yield "kills that hit an outage", str(summary.failed_kills)
    yield "kill retries by agents", str(summary.kill_retries)
    yield "longest wait of a Terminating pod", f"{summary.longest_wait:.1f} s"


def _span(values: list[float]) -> str:
    if not values:
        return "-"
    ordered = sorted(values)
    return f"min {ordered[0]:.1f}, median {ordered[len(ordered) // 2]:.1f}, max {ordered[-1]:.1f}"
