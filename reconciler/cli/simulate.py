"""`reconciler simulate`: the main job on an embedded cluster, with the real controller and the real agents."""

from __future__ import annotations

import logging
import re
import sys
from typing import Annotated

import typer
from rich.console import Console

from metrics.server import CannotListen
from reconciler.sim import faults as known_faults
from reconciler.sim import session, view
from reconciler.sim.agents import real_agent

Nodes = Annotated[int, typer.Option(min=1, max=500, help="Nodes of the cluster.")]
Loops = Annotated[int, typer.Option(min=1, help="How often the runtime is installed and uninstalled.")]
Faults = Annotated[
    str,
    typer.Option(
        help=f"What goes wrong: all, none, or some of {', '.join(known_faults.parse('all'))} (commas between)."
    ),
]
Seed = Annotated[int, typer.Option(help="Decides everything that is left to chance.")]
Pace = Annotated[float, typer.Option(min=0.1, help="Mean seconds between two faults of one kind.")]
Bake = Annotated[int, typer.Option(min=0, help="rollout.bakeSeconds.")]
Unavailable = Annotated[str, typer.Option(help="rollout.maxUnavailable: a count, or a percentage.")]
Controllers = Annotated[int, typer.Option(min=1, max=5, help="Replicas of the controller.")]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of /status and /metrics on the loopback; 0: one that is free.")
]
Virtual = Annotated[
    bool, typer.Option("--virtual-time", help="As fast as the machine can, in memory, without the view.")
]


def simulate(
    *,
    nodes: Nodes = 6,
    loops: Loops = 3,
    faults: Faults = "kill-window",
    seed: Seed = 1,
    pace: Pace = 5.0,
    bake: Bake = 1,
    max_unavailable: Unavailable = "100%",
    controllers: Controllers = 2,
    port: Port = 0,
    virtual_time: Virtual = False,
) -> None:
    """Install and uninstall a runtime in a loop on an embedded cluster in which things go wrong.

    Exits with 0 only if every loop ended, no invariant was broken, and nothing was left behind.
    """
    try:
        chosen = known_faults.parse(faults)
    except known_faults.UnknownFault as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from error
    console = Console()
    for name in ("reconciler", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # faults are meant; the view says what they do

    asked = session.Session(
        nodes=nodes,
        loops=loops,
        faults=chosen,
        seed=seed,
        pace=pace,
        bake=bake,
        max_unavailable=_count_or_percent(max_unavailable),
        controllers=controllers,
        virtual_time=virtual_time,
        port=port,
    )
    try:
        ended = session.run(asked, real_agent, console)
    except CannotListen as error:
        print(f"reconciler: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    console.print(view.result(ended.loops, ended.injector, ended.observer))
    raise typer.Exit(0 if ended.clean else 1)


def _count_or_percent(text: str) -> int | str:
    """Raises BadParameter for what the API server would refuse."""
    if re.fullmatch("[0-9]*[1-9][0-9]*%?", text) is None:
        raise typer.BadParameter(
            f"{text!r} is neither a count nor a percentage of 1 or more", param_hint="--max-unavailable"
        )
    return text if text.endswith("%") else int(text)
