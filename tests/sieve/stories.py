"""The runs that are recorded: each ends with nothing left of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from reconciler.api import names
from reconciler.api.node import NodeState, decode_state
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim import kinds
from reconciler.sim.loops import BINARY, HANDLER, RUNTIME, manifest, phase
from tests.simulation.conftest import Scenario

LIMIT = 400.0
"""Simulated seconds for one step of a story: each of its faults is over after 40."""
PREPARED = "/opt/kata/prepared"
LICENCE = "srv/licence"
"""Of a node's root: without it the payload of `retry` fails. Nobody's business but the story's."""
OTHER = "gvisor"
OTHER_BINARY = "/opt/gvisor/runsc"


@dataclass(frozen=True)
class Story:
    """`restarts`: of containerd on each node, one for each change. `pods`: phase pods in all, one for each try."""

    name: str
    main: Callable[[Scenario], Coroutine[Any, Any, None]]
    restarts: int
    pods: int
    nodes: int = 2


async def upgrade(s: Scenario) -> None:
    """Install, upgrade, uninstall; phases that end by themselves, and one that says so by a label and sleeps."""
    install = phase(f"drop={BINARY}", done="sim/installed=true", grace=1)
    body = manifest(unavailable=1, bake=1, **_phases(install=install))
    await s.create(body)
    first = await _ready(s, RUNTIME)
    handler = {**body["spec"]["handlers"][0], "options": {"ConfigPath": "/opt/kata/qemu.toml"}}
    await s.patch({"handlers": [handler], "phases": {"preInstall": {"args": ["seconds=0.5", f"drop={PREPARED}"]}}})
    await _ready(s, RUNTIME, other_than=first)
    await _delete(s, RUNTIME)


async def retry(s: Scenario) -> None:
    """The first try of a phase fails on the first node; the next one, after somebody has mended the cause, does not."""
    install = phase("seconds=0.5", f"drop={BINARY}", f"needs=/{LICENCE}")
    await s.create(manifest(unavailable=1, bake=1, **_phases(install=install)))
    await s.until(lambda: any(_attempt(s, node) > 1 for node in s.cluster.nodes), LIMIT)
    for node in s.cluster.nodes.values():
        path = node.root / LICENCE
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    await _ready(s, RUNTIME)
    await _delete(s, RUNTIME)


async def two(s: Scenario) -> None:
    """Two runtimes come at once, and go one after the other."""
    await s.create(manifest(unavailable="100%", bake=1, **_phases()))
    await s.create(_other())
    await _ready(s, RUNTIME)
    await _ready(s, OTHER)
    await s.delete()
    await s.cluster.admin.delete(NODERUNTIMES, OTHER)
    await _gone(s, OTHER)
    await _gone(s, RUNTIME)


STORIES = {
    story.name: story
    for story in (
        Story("upgrade", upgrade, restarts=3, pods=12),
        Story("retry", retry, restarts=2, pods=9),
        Story("two", two, restarts=4, pods=12),
    )
}


def _phases(**other: Any) -> dict[str, Any]:
    return {
        "preInstall": phase("seconds=0.5", f"drop={PREPARED}"),
        "install": phase("seconds=0.5", f"drop={BINARY}"),
        "uninstall": phase("seconds=0.5", f"take={BINARY}"),
        "postUninstall": phase("seconds=0.5", f"take={PREPARED}"),
        **other,
    }


def _other() -> dict[str, Any]:
    handler = {
        "name": "runsc",
        "runtimeType": "io.containerd.runsc.v1",
        "runtimePath": OTHER_BINARY,
        "runtimeClass": {"name": "runsc"},
    }
    phases = {
        "install": phase("seconds=0.5", f"drop={OTHER_BINARY}"),
        "uninstall": phase("seconds=0.5", f"take={OTHER_BINARY}"),
    }
    rollout = {"maxUnavailable": "100%", "bakeSeconds": 1}
    return {"metadata": {"name": OTHER}, "spec": {"handlers": [handler], "rollout": rollout, "phases": phases}}


def states(s: Scenario, runtime: str) -> dict[str, NodeState]:
    """By node, for those that carry a state of `runtime`."""
    texts = {
        node: (s.node(node)["metadata"].get("annotations") or {}).get(names.state_annotation(runtime))
        for node in s.cluster.nodes
    }
    return {node: decode_state(text) for node, text in texts.items() if text is not None}


def _attempt(s: Scenario, node: str) -> int:
    state = states(s, RUNTIME).get(node)
    return 0 if state is None else state.attempt


async def _ready(s: Scenario, runtime: str, other_than: str = "") -> str:
    """Until every node is ready with one revision, which is told; CRI serves its handlers in truth."""
    found: set[str] = set()

    def holds() -> bool:
        there = states(s, runtime)
        found.clear()
        found.update(state.installed for state in there.values())
        ready = [state for state in there.values() if state.stage == "ready"]
        return len(ready) == len(s.cluster.nodes) and len(found) == 1 and other_than not in found

    await s.until(holds, LIMIT)
    handler = {RUNTIME: HANDLER, OTHER: "runsc"}[runtime]
    assert all(handler in node.daemon.loaded.handlers for node in s.cluster.nodes.values())
    return found.pop()


async def _delete(s: Scenario, runtime: str) -> None:
    await s.cluster.admin.delete(NODERUNTIMES, runtime)
    await _gone(s, runtime)


async def _gone(s: Scenario, runtime: str) -> None:
    await s.until(lambda: s.cluster.server.store.get(kinds.NODERUNTIMES, ("", runtime)) is None, LIMIT)
