"""`reconciler agent`: the agent of the node it runs on. Started before the command line's libraries are loaded."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import posixpath
import random
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from prometheus_client import REGISTRY

from metrics.agent import AgentCollector, Metrics
from metrics.exporter import Exporter
from metrics.kube import RequestMetrics
from metrics.server import CannotListen
from reconciler.agent.deps import Deps
from reconciler.agent.inotify import SocketDirectory
from reconciler.agent.lives import Lives
from reconciler.agent.service import Agent
from reconciler.api import names
from reconciler.api.clock import SystemClock
from reconciler.api.logs import setup
from reconciler.cri.client import GrpcCri
from reconciler.hostconfig import (
    BOOT_ID,
    BinaryDump,
    HostCauses,
    HostConfig,
    HostRoot,
    LinuxProcesses,
    Refused,
    discover,
)
from reconciler.kube.client import Client
from reconciler.kube.light import LightTransport
from reconciler.systemd.api import SystemdError
from reconciler.systemd.client import DbusSystemd

log = logging.getLogger(__name__)

THREADS = 3
"""For blocking calls: the engine (one change at a time), the guard, and reading a token. The loop's own default
grows with the cores, and each thread keeps memory of its own."""


def main(argv: list[str]) -> int:
    """Exit status: 0 after SIGTERM, 2 for what a person must mend."""
    parser = argparse.ArgumentParser(prog="reconciler agent", description=__doc__)
    parser.add_argument("--node", default=os.environ.get("NODE_NAME", ""), help="name of this Node")
    parser.add_argument("--host", type=Path, default=Path("/host"), help="where the host's / is mounted")
    parser.add_argument("--socket", default=names.CONTAINERD_SOCKET, help="CRI socket, path on the host")
    parser.add_argument("--unit", default="containerd.service")
    parser.add_argument("--port", type=int, default=9441, help="port of /metrics, /healthz and /readyz")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args(argv)
    setup(options.log_level)
    if not options.node:
        print("reconciler: no node name; set NODE_NAME or give --node", file=sys.stderr)
        return 2
    try:
        transport = LightTransport.in_cluster()
    except (KeyError, OSError) as error:
        print(f"reconciler: not in a pod of a cluster ({error}); the agent runs as a DaemonSet", file=sys.stderr)
        return 2
    try:
        asyncio.run(_serve(options, Client(transport, metrics=RequestMetrics())))
    except (Refused, SystemdError, CannotListen) as error:
        print(f"reconciler: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(options: argparse.Namespace, client: Client) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="agent"))
    host: Path = options.host
    systemd = DbusSystemd(f"unix:path={host}/run/dbus/system_bus_socket")
    cri = GrpcCri(str(host / options.socket.lstrip("/")))
    metrics = Metrics()
    lives = Lives(lambda replaced: _agent(options, client, systemd, cri, metrics, replaced))
    await lives.begin()
    REGISTRY.register(AgentCollector(lambda: lives.agent.figures()))
    running = asyncio.ensure_future(lives.run())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        lives.agent.stop()
        running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        async with Exporter(options.port, ready=lambda: lives.agent.ready):
            await running
    except asyncio.CancelledError:
        log.info("agent ends")
    finally:
        await systemd.close()
        cri.close()
        await client.close()


async def _agent(
    options: argparse.Namespace,
    client: Client,
    systemd: DbusSystemd,
    cri: GrpcCri,
    metrics: Metrics,
    replaced: Callable[[], None],
) -> Agent:
    """The agent of the containerd that is found now. Raises Refused and SystemdError."""
    host, root = options.host, HostRoot(options.host)
    found = await discover(systemd, LinuxProcesses(root), root, socket=options.socket, unit=options.unit)
    for note in found.notes:
        log.warning("about containerd", extra={"note": note})
    clock = SystemClock()
    engine = HostConfig(
        host,
        found.config,
        found.version,
        names.HOST_STATE_DIR,
        systemd=systemd,
        cri=cri,
        unit=found.unit,
        clock=clock,
        dump=BinaryDump(host, root.local(found.binary)),
        outside=HostCauses(root, posixpath.dirname(options.socket)),
    )
    # through the host's mount: what kubelet reads there is what the controller compares it with
    boot = await asyncio.to_thread((host / BOOT_ID.lstrip("/")).read_text)
    log.info("agent runs", extra={"node": options.node, **asdict(found)})
    return Agent(
        Deps(
            node=options.node,
            client=client,
            cri=cri,
            systemd=systemd,
            host=engine,
            clock=clock,
            rng=random.Random(),
            metrics=metrics,
            watch=SocketDirectory(host / options.socket.lstrip("/")),
            boot=boot.strip(),
            own_pod=os.environ.get("POD_UID", ""),
            namespace=os.environ.get("POD_NAMESPACE", names.NAMESPACE),
            unit=found.unit,
            replaced=replaced,
        )
    )
