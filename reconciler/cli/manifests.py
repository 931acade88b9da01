"""`reconciler manifests`: print what to apply."""

from __future__ import annotations

import sys

import msgspec
import typer

from reconciler.api import crd


def manifests(output: str = typer.Option("yaml", help="yaml or json")) -> None:
    """Print the CustomResourceDefinition of this version."""
    document = crd.definition()
    if output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        sys.stdout.write(crd.as_yaml(document))
