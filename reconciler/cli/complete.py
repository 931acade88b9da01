"""Names that the shell completes: nodes and NodeRuntimes of the cluster that the options before them name."""

from __future__ import annotations

import asyncio
from typing import Any

import typer

from reconciler.kube.client import Client
from reconciler.kube.cluster import ConfigError, connect
from reconciler.kube.errors import ApiError, TransportError
from reconciler.kube.resources import NODERUNTIMES, NODES, Resource

DEADLINE = 5.0
"""Seconds that a person waits at most for the Tab key."""


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, NODES, incomplete)


def runtimes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, NODERUNTIMES, incomplete)


def _names(ctx: typer.Context, resource: Resource[Any], start: str) -> list[str]:
    """Nothing when the cluster cannot be asked: a completion has nowhere to complain."""
    options = ctx.params
    try:
        return asyncio.run(_listed(resource, start, options.get("kubeconfig") or "", options.get("context") or ""))
    except (ConfigError, ApiError, TransportError, TimeoutError):
        return []


async def _listed(resource: Resource[Any], start: str, kubeconfig: str, context: str) -> list[str]:
    async with asyncio.timeout(DEADLINE):
        client = Client(await connect(kubeconfig or None, context=context))
        try:
            found, _ = await client.list(resource)
        finally:
            await client.close()
    return sorted(name for item in found if (name := item.metadata.name).startswith(start))
