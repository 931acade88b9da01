"""A made-up fleet behind the real server: what the page is shown, without a cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from metrics.exporter import Exporter
from reconciler.api.clock import SystemClock
from reconciler.api.node import Problem
from reconciler.api.overview import Barrier, NodeRow, Overview, RuntimeRow, Stopped, Verdict
from reconciler.controller.feed import Feed, Replica
from reconciler.controller.statuspage import routes

STAGES = ("ready",) * 60 + ("pre-install", "install", "configure", "verify", "absent", "absent")
MARKUP = "<img src=x onerror=document.title='owned'> back-off pulling image \"registry.example/kata:3.2\""
"""A message as a payload could write it."""
CLOCK_AHEAD = timedelta(hours=5)
"""The controller's clock against the browser's."""


class MadeUp:
    """`rows` may be changed while a page looks on."""

    def __init__(
        self, *, nodes: int, runtimes: tuple[str, ...] = ("kata", "gvisor", "wasmtime"), seed: int = 1
    ) -> None:
        self.names = runtimes
        self.stopped: Stopped | None = None
        self.leads = True
        rng = random.Random(seed)
        made = (self._row(f"node-{n}", name, rng.choice(STAGES)) for n in range(1, nodes + 1) for name in runtimes)
        self.rows = {(row.node, row.runtime): row for row in made}

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC) + CLOCK_AHEAD

    def _row(self, node: str, runtime: str, stage: str) -> NodeRow:
        verdict = {"ready": Verdict.OK, "absent": Verdict.WAITING}.get(stage, Verdict.WORKING)
        rests = stage in ("ready", "absent")
        return NodeRow(
            runtime=runtime,
            node=node,
            stage=stage,
            verdict=verdict,
            reason="Slot" if stage == "absent" else "Working",
            awaits="slot" if stage == "absent" else "pod-end",
            since=None if stage == "absent" else self.now() - timedelta(seconds=90 if not rests else 7_300),
            deadline=None if rests else self.now() + timedelta(seconds=510),
            waits_for="a slot of rollout.maxUnavailable"
            if stage == "absent"
            else "the end of its pod"
            if not rests
            else "",
            last_seen="pod is Running" if not rests else "",
            next="stage configure" if not rests else "",
            barrier=Barrier.OPEN,
            revision="5f2c9a7be1",
        )

    def become(self, node: str, runtime: str, **changes: object) -> None:
        key = (node, runtime)
        self.rows[key] = msgspec.structs.replace(self.rows[key], **changes)

    def get_stuck(self, node: str, runtime: str) -> None:
        self.become(
            node,
            runtime,
            stage="install",
            verdict=Verdict.STUCK,
            since=self.now() - timedelta(seconds=725),
            deadline=self.now() - timedelta(seconds=125),
            waits_for="the image of the install pod",
            last_seen="container waits: ImagePullBackOff",
            next="a second attempt once the deadline's pause is over",
            advice="Check spec.phases.install.image and the pull secret; `kubectl reconciler retry` begins anew.",
            error=Problem("ImagePullFailed", MARKUP),
        )

    def fail(self, node: str, runtime: str) -> None:
        self.become(
            node,
            runtime,
            stage="failed",
            verdict=Verdict.FAILED,
            since=self.now() - timedelta(seconds=4_000),
            deadline=None,
            attempt=3,
            barrier=Barrier.CLOSED,
            error=Problem("VerifyFailed", "handler kata-qemu is not served after the restart; the change was undone"),
            advice="Look at the handler's shim on the node, then `kubectl reconciler retry`.",
        )

    def overview(self) -> Overview:
        return Overview(
            time=self.now(), stopped=self.stopped, runtimes=tuple(self._sums()), nodes=tuple(self.rows.values())
        )

    def _sums(self) -> Iterator[RuntimeRow]:
        for name in self.names:
            mine = [row for row in self.rows.values() if row.runtime == name]
            verdicts = Counter(row.verdict for row in mine)
            bad = verdicts[Verdict.STUCK] + verdicts[Verdict.FAILED]
            yield RuntimeRow(
                name=name,
                total=len(mine),
                ready=verdicts[Verdict.OK],
                updating=verdicts[Verdict.WORKING],
                failed=verdicts[Verdict.FAILED],
                stuck=verdicts[Verdict.STUCK],
                stages=dict(Counter(row.stage for row in mine)),
                halted="more nodes are failed or stuck than rollout.errorBudget allows" if bad else "",
                problem=Problem("ImagePullFailed", f"node-7: {MARKUP}") if bad else None,
                revision="5f2c9a7be1",
            )

    async def look(self) -> tuple[Replica, Overview]:
        return Replica(identity="controller-7c9f8-x2x4v", leads=self.leads, synced=True), self.overview()


class _Ahead(SystemClock):
    def now(self) -> datetime:
        return MadeUp.now()


@asynccontextmanager
async def served(fleet: MadeUp, port: int = 0, *, rng: random.Random | None = None) -> AsyncIterator[str]:
    """The page's address."""
    feed = Feed(fleet.look, clock=_Ahead(), rng=rng or random.Random(1))
    async with Exporter(port, ready=lambda: True, host="127.0.0.1", routes=routes(feed)) as exporter:
        yield f"http://127.0.0.1:{exporter.port}/status"
