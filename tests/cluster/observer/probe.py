"""Asks each node's CRI ten times a second whether it serves; a process of its own, so that nothing delays it.

Writes a JSON line per change: `{"node", "t", "ok", "why"}`, where `t` is the wall clock at which the question that
showed the change was asked, so that an outage is the time between the last good and the next good answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase

from tests.cluster import paths
from tests.cluster.cluster import nodes
from tests.cluster.command import Daemon
from tests.cluster.node import Node

LOG = paths.RUN / "probe.jsonl"
INTERVAL = 0.1
_PATIENCE = 1.0


class _Raw(CodecBase):
    """Messages as bytes: an empty request, and an answer that is searched for one field."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


@dataclass(frozen=True)
class Outage:
    """CRI did not serve between `began` and `ended` (wall clock; None: still does not)."""

    node: str
    began: float
    ended: float | None
    why: str

    @property
    def seconds(self) -> float:
        return (self.ended if self.ended is not None else time.time()) - self.began


class Probe:
    """The observer's side of it."""

    def __init__(self) -> None:
        self._daemon = Daemon("probe", paths.RUN)

    def start(self) -> None:
        self._daemon.kill()
        LOG.write_text("")
        self._daemon.start([sys.executable, "-m", "tests.cluster.observer.probe"], cwd=paths.PROJECT)

    def stop(self) -> None:
        self._daemon.kill()

    @property
    def alive(self) -> bool:
        """An observer that has died has seen nothing since."""
        return self._daemon.pid() is not None

    def outages(self, node: str, since: float) -> list[Outage]:
        """Outages of `node` that ended after `since`, or go on."""
        found: list[Outage] = []
        begun: tuple[float, str] | None = None
        for line in LOG.read_text().splitlines():
            change = json.loads(line)
            if change["node"] != node:
                continue
            if not change["ok"] and begun is None:
                begun = (change["last_ok"], change["why"])
            elif change["ok"] and begun is not None:
                found.append(Outage(node, begun[0], change["t"], begun[1]))
                begun = None
        if begun is not None:
            found.append(Outage(node, begun[0], None, begun[1]))
        return [outage for outage in found if outage.ended is None or outage.ended >= since]

    def serving(self, node: str) -> bool:
        """Whether the last answer was a good one."""
        changes = [json.loads(line) for line in LOG.read_text().splitlines()]
        mine = [change["ok"] for change in changes if change["node"] == node]
        return bool(mine and mine[-1])


async def _ask(node: Node, channel: Channel | None) -> tuple[Channel | None, str]:
    """The channel to go on with, and why CRI does not serve (empty: it does)."""
    try:
        if channel is None:
            channel = Channel(path=str(node.path("/run/containerd/containerd.sock")), codec=_Raw())
        status = UnaryUnaryMethod[Any, Any](channel, "/runtime.v1.RuntimeService/Status", bytes, bytes)
        answer = await asyncio.wait_for(status(b""), _PATIENCE)
    except Exception as error:  # whatever it is, it is no good answer, and the observer must go on
        if channel is not None:
            channel.close()
        return None, f"{type(error).__name__}: {error}"[:200]
    return channel, "" if b"RuntimeReady\x10\x01" in answer else "RuntimeReady is false"


async def _watch(node: Node, log: Path) -> None:
    channel: Channel | None = None
    last_ok, known = time.time(), ""
    first = True
    while True:
        asked = time.time()
        channel, why = await _ask(node, channel)
        if first or bool(why) != bool(known):
            line = {"node": node.name, "t": asked, "ok": not why, "why": why, "last_ok": last_ok}
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
        first, known = False, why
        if not why:
            last_ok = asked
        await asyncio.sleep(max(0.0, asked + INTERVAL - time.time()))


async def _main() -> None:
    async with asyncio.TaskGroup() as tasks:
        for node in nodes():
            tasks.create_task(_watch(node, LOG))


if __name__ == "__main__":
    asyncio.run(_main())
