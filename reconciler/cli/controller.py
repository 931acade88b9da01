"""`reconciler controller`: one replica of the controller, with its status page, /metrics, /healthz and /readyz."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys

import typer
from prometheus_client import REGISTRY

from metrics.controller import ControllerCollector
from metrics.exporter import Exporter
from metrics.kube import RequestMetrics
from metrics.server import CannotListen
from reconciler.api import logs, names
from reconciler.api.clock import SystemClock
from reconciler.controller import Controller, statuspage
from reconciler.controller.feed import Feed
from reconciler.kube.client import Client
from reconciler.kube.cluster import ConfigError, connect


def controller(
    namespace: str = typer.Option(names.NAMESPACE, envvar="POD_NAMESPACE", help="Namespace of pods and Lease."),
    kubeconfig: str = typer.Option("", envvar="KUBECONFIG", help="In a pod: its own credentials."),
    identity: str = typer.Option("", envvar="POD_NAME", help="Name in the Lease; the host's name by default."),
    node: str = typer.Option("", envvar="NODE_NAME", help="The node this runs on; it is changed last."),
    port: int = typer.Option(9440, help="Port of /status, /metrics, /healthz and /readyz."),
    log_level: str = typer.Option("info"),
) -> None:
    """Run the controller until SIGTERM."""
    logs.setup(log_level)
    try:
        asyncio.run(_serve(namespace, kubeconfig, identity or f"{socket.gethostname()}-{os.getpid()}", node, port))
    except (ConfigError, CannotListen) as error:
        print(f"reconciler: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


async def _serve(namespace: str, kubeconfig: str, identity: str, node: str, port: int) -> None:
    client = Client(await connect(kubeconfig or None), metrics=RequestMetrics())
    clock, rng = SystemClock(), random.Random()
    it = Controller(client, clock=clock, rng=rng, namespace=namespace, identity=identity, own_node=node)
    feed = Feed(lambda: statuspage.seen_by(it), clock=clock, rng=rng)
    REGISTRY.register(ControllerCollector(it.figures))
    running = asyncio.ensure_future(it.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        async with Exporter(port, ready=lambda: it.synced, routes=statuspage.routes(feed)):
            await running
    except asyncio.CancelledError:
        pass  # asked to stop: the Lease has been given back
    finally:
        await client.close()
