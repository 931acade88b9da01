"""The command line: one file per command."""

from __future__ import annotations

import typer

from reconciler.cli.controller import controller
from reconciler.cli.manifests import manifests
from reconciler.cli.simulate import simulate

app = typer.Typer(no_args_is_help=True, add_completion=True, help=__doc__)
app.command()(controller)
app.command()(manifests)
app.command()(simulate)


@app.command()
def agent() -> None:
    """The node agent. (It is started before this command line is loaded; see `reconciler agent --help`.)"""
    raise typer.Exit(2)
