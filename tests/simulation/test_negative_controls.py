"""The judge can fail: with the barrier switched off, an undo left out, or the kill retrier gone it complains."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.agent import Agent
from reconciler.controller import goals
from reconciler.hostconfig import HostConfig, Outcome
from reconciler.hostconfig.model import Verdict
from reconciler.kube.client import Client
from reconciler.phases.facts import Facts
from reconciler.sim import agents
from reconciler.sim.life import MortalCri
from reconciler.sim.loops import BINARY, manifest, phase
from reconciler.sim.node import SimNode

Drive = Callable[..., None]
PHASES = {"install": phase("seconds=1", f"drop={BINARY}"), "uninstall": phase("seconds=1", f"take={BINARY}")}


async def a_loop_with_outages(s: Any) -> None:
    """containerd goes away for 8 s right before the first pod is due, and while a sleeping one is to be killed."""
    for node in s.cluster.nodes.values():
        s.cluster.spawn(node.outage(8))
    await asyncio.sleep(3)
    sleeper = phase(f"drop={BINARY}", done="sim/never=true", deaf=False)
    sleeper["args"].remove("label=sim/never=true")
    await s.create(manifest(unavailable="100%", **{**PHASES, "install": sleeper}))
    await s.until(lambda: s.stage_somewhere("install"))
    await asyncio.sleep(12)
    for node in s.cluster.nodes.values():
        s.cluster.spawn(node.outage(8))
    await asyncio.sleep(3)
    await s.delete()
    await s.until(lambda: s.runtime() is None, 300)


def test_with_the_barrier_no_pod_is_touched_in_an_outage(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await a_loop_with_outages(s)
        assert s.observer.broken == []

    drive(main)


def test_without_the_barrier_the_judge_sees_pods_touched_in_an_outage(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = goals.facts_for

    def always_open(*arguments: Any, **options: Any) -> Facts:
        return dataclasses.replace(honest(*arguments, **options), serving=True)

    monkeypatch.setattr(goals, "facts_for", always_open)

    async def main(s: Any) -> None:
        await a_loop_with_outages(s)
        breaches = [breach.what for breach in s.observer.broken if "while containerd had been away" in breach.what]
        assert [line for line in breaches if " was made " in line]
        assert [line for line in breaches if " was killed " in line]
        s.observer.broken.clear()

    drive(main)


class Forgetful(HostConfig):
    """Says that it has taken everything out, its journal's entry too, and has not."""

    forgot = False

    async def remove(self, name: str, **options: Any) -> Outcome:
        self.forgot = True
        return Outcome(Verdict.CHANGED)

    def journal(self) -> dict[str, str]:
        return {} if self.forgot else super().journal()


def test_an_undo_that_the_agent_leaves_out_is_found(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "HostConfig", Forgetful)

    async def main(s: Any) -> None:
        await s.create(manifest(unavailable="100%", **PHASES))
        await s.ready()
        await s.delete()
        await s.until(lambda: s.runtime() is None)
        await asyncio.sleep(40)
        left = s.left()
        assert "node-1: /etc/containerd/config.toml is not as it was" in left
        assert "node-2: /etc/containerd/config.toml is not as it was" in left
        assert {breach.invariant for breach in s.observer.broken} == {"binaries-last", "finalizer-last"}
        s.observer.broken.clear()

    drive(main)


def test_an_undo_that_the_payload_leaves_out_is_found(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest(unavailable="100%", install=PHASES["install"], uninstall=phase("seconds=1")))
        await s.ready()
        await s.delete()
        await s.until(lambda: s.runtime() is None)
        await asyncio.sleep(40)
        assert s.left() == [f"{name}: {BINARY} is left" for name in ("node-1", "node-2")]

    drive(main)


class NoKills(MortalCri):
    """Stops nothing: what a kubelet could not kill stays with the kubelet."""

    async def stop_container(self, container_id: str, *, grace: float, timeout: float) -> None:
        return

    async def stop_sandbox(self, sandbox_id: str, *, timeout: float) -> None:
        return


def without_kills(node: SimNode, client: Client) -> Agent:
    """The real agent, whose kill retrier has no effect."""
    real = node.cri

    def deaf() -> MortalCri:
        cri = real()
        return NoKills(cri._inner, cri._life, stopped=cri._stopped)

    node.cri = deaf  # type: ignore[method-assign]
    try:
        return agents.real_agent(node, client)
    finally:
        node.cri = real  # type: ignore[method-assign]


def test_without_retried_kills_a_hook_that_restarts_containerd_does_not_stop(drive: Drive) -> None:
    async def main(s: Any) -> None:
        hooked = phase(f"drop={BINARY}", done="sim/installed=true", grace=5, hook=("restart",))
        await s.create(manifest(unavailable="100%", install=hooked))
        await asyncio.sleep(120)
        assert s.restarts_of("node-1", "hook") > 2
        assert s.stages()["node-1"] != "ready"

    drive(main, agent=without_kills)
