"""What becomes known between a decision and its request counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.kube.transport import STRATEGIC_MERGE_PATCH
from reconciler.sim.loops import BINARY, manifest, phase
from reconciler.sim.requests import Request
from reconciler.sim.server import Trouble

Drive = Callable[..., None]


def test_no_pod_is_made_when_the_last_look_shows_that_containerd_is_away(drive: Drive) -> None:
    async def main(s: Any) -> None:
        told: list[float] = []

        def away(request: Request) -> Trouble | None:
            """Right before the answer to the controller's last look at the Node, its agent says so."""
            look = (request.method, request.path) == ("GET", "/api/v1/nodes/node-1")
            if look and request.user.startswith("controller") and not told:
                told.append(asyncio.get_running_loop().time())
                body = {"status": {"conditions": [{"type": names.SERVING_CONDITION, "status": "False"}]}}
                path, sent = f"{request.path}/status", msgspec.json.encode(body)
                s.cluster.server.answer(Request("PATCH", path, {}, sent, STRATEGIC_MERGE_PATCH, "agent:node-1"))
            return None

        s.cluster.server.knobs.trouble = away
        await s.create(manifest(install=phase("seconds=1", f"drop={BINARY}"), uninstall=phase(f"take={BINARY}")))
        await s.ready()
        assert len(told) == 1
        assert [breach.what for breach in s.observer.broken] == []

    drive(main, nodes=1)
