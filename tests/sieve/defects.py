"""Deliberate defects, as Sieve's authors found them: each is caught by the pattern that it is named with.

They are patched in at run time, for one block. `points`: an expression for the names of the points that are tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from reconciler.agent.work import Worker
from reconciler.api.meta import Node
from reconciler.api.node import POD_STAGES, Stage
from reconciler.controller import node as node_module
from reconciler.controller.node import NodeReconciler
from reconciler.controller.world import states
from reconciler.hostconfig import state as state_module
from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.resources import PODS
from reconciler.sim.loops import RUNTIME
from tests.sieve.points import of, tried
from tests.sieve.run import run
from tests.sieve.stories import STORIES

GOLDEN = 0.618034
"""Of the run, from one try to the next: each falls into the largest gap that is left."""


@dataclass(frozen=True)
class Defect:
    pattern: str
    points: str
    planted: Callable[[], AbstractContextManager[Any]]


def evidence_first() -> AbstractContextManager[Any]:
    """The pod of a phase is deleted before its result is recorded."""
    honest = NodeReconciler._move

    async def move(self: NodeReconciler, node: Any, runtime: str, state: Any, decision: Any, writer: Client) -> None:
        if state is not None and state.stage in POD_STAGES:
            for pod in self._world.phase_pods(node.metadata.name, runtime):
                await writer.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace_seconds=0)
        await honest(self, node, runtime, state, decision, writer)

    return mock.patch.object(NodeReconciler, "_move", move)


def cached_lists() -> AbstractContextManager[Any]:
    """Lists are answered from the server's cache (resourceVersion=0), as client-go's are."""
    honest = Informer.__init__

    def informer(self: Any, *arguments: Any, **options: Any) -> None:
        honest(self, *arguments, **options)
        self._query = {**self._query, "resourceVersion": "0"}

    return mock.patch.object(Informer, "__init__", informer)


@contextmanager
def no_live_look() -> Iterator[None]:
    """A pod is made on what the stores say, without a look past them, and lists are cached."""

    async def confirm(*_: Any) -> None:
        return None

    with cached_lists(), mock.patch.object(NodeReconciler, "_confirm", confirm):
        yield


@contextmanager
def no_precondition() -> Iterator[None]:
    """A transition is written whatever the Node has become meanwhile, and lists are cached."""
    honest = node_module.patch_of

    def patch_of(*arguments: Any) -> dict[str, Any]:
        body = honest(*arguments)
        del body["metadata"]["resourceVersion"]
        return body

    with cached_lists(), mock.patch.object(node_module, "patch_of", patch_of):
        yield


def torn_journal() -> AbstractContextManager[Any]:
    """The host's journal is written in place, not beside it and renamed."""

    def write_state(path: Path, data: bytes, mode: int = 0o600) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)

    return mock.patch.object(state_module, "write_state", write_state)


def edge_triggered() -> AbstractContextManager[Any]:
    """An agent works when it sees its stage begin after the one before, and not because that is the stage."""
    follows = {Stage.CONFIGURE: Stage.INSTALL, Stage.UNCONFIGURE: Stage.READY}
    honest = Worker.see

    def see(self: Worker, node: Node) -> None:
        before, after = (_stage(n) for n in (self._node, node))
        if self._node is None or after not in follows or before in (after, follows[after]):
            honest(self, node)

    return mock.patch.object(Worker, "see", see)


def _stage(node: Node | None) -> Stage | None:
    state = None if node is None else states(node).get(RUNTIME)
    return None if state is None else state.stage


def caught(defect: Defect, *, tries: int) -> str:
    """The name of the first point at which `defect` shows, of `tries` spread over the run; empty when at none.

    What shows without any fault needs no pattern to be found, and is not counted.
    """
    with defect.planted():
        record = run(STORIES["upgrade"])
        known = {_untimed(problem) for problem in record.problems}
        found = [p for p in of(STORIES["upgrade"], record) if p.pattern == defect.pattern]
        found = [point for point in found if re.search(defect.points, point.name)]
        for number in range(tries):
            point = found[int(number * GOLDEN % 1 * len(found))]
            if {_untimed(problem) for problem in tried(point)[1].problems} - known:
                return point.name
    return ""


def _untimed(problem: str) -> str:
    """A breach without its moment."""
    return re.sub(r"^[\d.]+ s: ", "", problem)


DEFECTS = (
    Defect("intermediate", r"/controller[^/]*/\d+/before", evidence_first),
    Defect("intermediate", r"/agent:node-1/\d+/half", torn_journal),
    Defect("stale", r"/controller[^/]*/\d+/all/20/restart", no_precondition),
    Defect("stale", r"/controller[^/]*/\d+/all/20/restart", no_live_look),
    Defect("unobserved", r"/agent:node-1/\d+/2$", edge_triggered),
)
