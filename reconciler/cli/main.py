"""The command line: one file per command."""

from __future__ import annotations

import typer

from reconciler.cli import config
from reconciler.cli.controller import controller
from reconciler.cli.explain import explain
from reconciler.cli.manifests import manifests
from reconciler.cli.pause import pause
from reconciler.cli.resume import resume
from reconciler.cli.retry import retry
from reconciler.cli.simulate import simulate
from reconciler.cli.skip import skip
from reconciler.cli.status import status
from reconciler.cli.stop import stop
from reconciler.cli.teardown import teardown

app = typer.Typer(no_args_is_help=True, add_completion=True, help="Container runtimes for the nodes of a cluster.")
app.command()(controller)
app.command()(manifests)
app.command()(simulate)
app.command()(teardown)
app.command()(status)
app.command()(explain)
app.command()(pause)
app.command()(resume)
app.command()(stop)
app.command()(retry)
app.command()(skip)
app.add_typer(config.app, name="config")


@app.command()
def agent() -> None:
    """The node agent; `agent` must be the first word. See `reconciler agent --help`."""
    raise typer.BadParameter("give `agent` as the first word: it starts before this command line is loaded")
