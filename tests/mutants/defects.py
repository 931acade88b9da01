"""Deliberate defects: what breaks if one line of the product is lost. Each is a patch of the running program."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec

from reconciler.agent.gate import Gate
from reconciler.agent.kills import Kills
from reconciler.agent.work import Worker
from reconciler.api.node import Stage, cut
from reconciler.controller import goals, node, outlooks
from reconciler.controller.runtime import RuntimeReconciler
from reconciler.controller.world import Outlook, World
from reconciler.hostconfig import blocks, engine, planning
from reconciler.hostconfig.proof import Proof, Prover
from reconciler.kube.informer import Informer
from reconciler.kube.lease import Elector
from reconciler.kube.resources import LEASES
from reconciler.phases import deadlines, leftovers, moving, questions, rollout, use, waits, work
from reconciler.phases.decision import EndPod, Move
from reconciler.phases.facts import Facts

Applied = Callable[[], AbstractContextManager[Any]]

OUTAGES = ("kill-window", "outage", "crash", "stopped")
PROCESSES = ("controller", "agent", "controller-twice")
PAYLOADS = ("payload-crashes", "payload-hangs", "payload-late", "payload-oom", "old-signal")


@dataclass(frozen=True)
class Defect:
    """`seeds`: how many plans may pass before it is caught."""

    name: str
    what: str
    apply: Applied
    faults: tuple[str, ...]
    """That the plans are drawn from."""
    seeds: int = 20


def swapped(where: Any, attribute: str, other: Any) -> Applied:
    return lambda: patch.object(where, attribute, other)


def _altered_facts(**others: Any) -> Applied:
    honest = goals.facts_for

    def facts_for(*arguments: Any, **options: Any) -> Facts:
        return dataclasses.replace(honest(*arguments, **options), **others)

    return swapped(goals, "facts_for", facts_for)


def _altered_patch(alter: Callable[[dict[str, Any]], None]) -> Applied:
    honest = node.patch_of

    def patch_of(*arguments: Any) -> dict[str, Any]:
        body = honest(*arguments)
        alter(body)
        return body

    return swapped(node, "patch_of", patch_of)


def _any_attempt(facts: Facts, state: Any) -> Any:
    return next((pod for pod in facts.pods if pod.stage == state.stage), None)


def _from_the_takeover(facts: Facts, state: Any) -> datetime | None:
    """As if `since` were what this process has seen."""
    seconds = deadlines.timeout(facts, state)
    begin = state.since if facts.leading_since is None else max(state.since, facts.leading_since)
    return None if seconds is None else begin + timedelta(seconds=seconds)


@asynccontextmanager
async def _no_lock(*_arguments: Any, **_options: Any) -> AsyncIterator[None]:
    yield


async def _by_the_wall(self: Elector) -> bool:
    """Believes the time that the holder wrote, and its own clock."""
    try:
        lease = await self._client.get(LEASES, self._name, self._namespace)
    except Exception:
        return await self._create()
    renewed = lease.spec.renew_time
    over = renewed is None or self._clock.now() > _time(renewed) + timedelta(seconds=self._duration)
    if (lease.spec.holder_identity or "") not in ("", self._identity) and not over:
        self._held = None
        return False
    self._keep(await self._client.replace(LEASES, self._name, self._body(lease), self._namespace))
    return True


def _time(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))


async def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


def _twice() -> AbstractContextManager[Any]:
    honest = Prover.restart_and_prove

    async def restart_and_prove(self: Prover, expected: Any, since: float) -> Proof:
        await honest(self, expected, since)
        return await honest(self, expected, since)

    return patch.object(Prover, "restart_and_prove", restart_and_prove)


def _no_diff() -> AbstractContextManager[Any]:
    """A re-list puts in what is there, and takes nothing out."""
    honest = Informer._replace

    async def _replace(self: Informer[Any], items: list[msgspec.Raw], version: str) -> None:
        with patch.object(self, "_remove", lambda key: None):
            await honest(self, items, version)

    return patch.object(Informer, "_replace", _replace)


@contextlib.contextmanager
def _several(*applied: Applied) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for one in applied:
            stack.enter_context(one())
        yield


def all_of(*applied: Applied) -> Applied:
    return lambda: _several(*applied)


def _unfenced(body: dict[str, Any]) -> None:
    body["metadata"].pop("resourceVersion", None)


def _uncordoned(body: dict[str, Any]) -> None:
    body["spec"] = {**body.get("spec", {}), "unschedulable": None}


def _label_left(body: dict[str, Any]) -> None:
    labels = body["metadata"]["labels"]
    for key in [key for key in labels if key.startswith("sim/")]:
        del labels[key]


def _uncut() -> Applied:
    """In each module of the product that cuts messages."""
    found = [m for name, m in sorted(sys.modules.items()) if name.startswith("reconciler.")]
    return all_of(*(swapped(m, "cut", lambda message: message) for m in found if getattr(m, "cut", None) is cut))


def _without_comments(honest: Callable[..., bytes]) -> Callable[..., bytes]:
    def edited(data: bytes, *arguments: Any) -> bytes:
        kept = [line for line in data.splitlines(keepends=True) if not line.startswith(b"# ") or b"reconciler" in line]
        return honest(b"".join(kept), *arguments)

    return edited


def _doubled(honest: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: 2 * honest(*arguments)


def _payload_first(honest: Callable[..., Any]) -> Callable[..., Any]:
    def begin(facts: Facts, state: Any, now: datetime, problem: Any = None) -> Any:
        found = honest(facts, state, now, problem)
        if isinstance(found, Move) and found.state is not None and found.state.stage is Stage.UNCONFIGURE:
            return moving._next_removal(facts, found.state, Stage.UNCONFIGURE, now)
        return found

    return begin


def _same_attempt(facts: Facts, state: Any, problem: Any, now: datetime) -> Any:
    return moving.enter(facts, msgspec.structs.replace(state, error=problem), state.stage, now, "AttemptFailed")


async def _none_left(*_arguments: Any) -> bool:
    return False


async def _same(self: RuntimeReconciler, runtime: Any) -> Any:
    return runtime


DEFECTS = (
    Defect(
        "barrier-off",
        "the controller takes every containerd for one that serves",
        _altered_facts(serving=True),
        OUTAGES,
    ),
    Defect("precondition-off", "patches of Nodes carry no resourceVersion", _altered_patch(_unfenced), PROCESSES),
    Defect(
        "old-attempt",
        "the pod of any attempt and revision counts as that of the present one",
        swapped(questions, "current_pod", _any_attempt),
        (*PAYLOADS, "edited"),
    ),
    Defect(
        "no-diff",
        "a re-list forgets nothing",
        _no_diff,
        ("expired-stream", "expired-status", "watch", "watch-silent", "edited"),
    ),
    Defect(
        "finalizer-early",
        "the finalizer goes without a look at the nodes",
        all_of(
            swapped(RuntimeReconciler, "_left_behind", _none_left),
            swapped(RuntimeReconciler, "_carriers", lambda self, runtime: []),
            swapped(RuntimeReconciler, "_seen_carrying", lambda self, name: False),
        ),
        ("deleted", "deleted-and-back", "controller"),
    ),
    Defect(
        "deadline-in-memory",
        "a deadline runs anew under each leader",
        swapped(deadlines, "deadline", _from_the_takeover),
        ("controller", "controller-twice", "payload-hangs"),
        40,
    ),
    Defect(
        "lease-by-wall-clock",
        "the Lease is judged by the time written in it",
        swapped(Elector, "_take", _by_the_wall),
        ("clock-skew", "clock-jump", "lease-slow"),
        40,
    ),
    Defect(
        "lock-left-out",
        "changes of one host do not wait for each other",
        swapped(engine, "host_lock", _no_lock),
        ("lock-held", "agent"),
    ),
    Defect(
        "binaries-first",
        "on the way out the payload's uninstall runs while the configuration names its binaries",
        swapped(moving, "begin_removal", _payload_first(moving.begin_removal)),
        ("deleted", "edited"),
    ),
    Defect(
        "foreign-cordon", "a node that is ready is made schedulable", _altered_patch(_uncordoned), ("cordon", "edited")
    ),
    Defect(
        "slots-ignored",
        "every node may begin at once",
        swapped(rollout, "count_of", lambda value, total, at_least: total),
        ("edited", "controller"),
    ),
    Defect("two-restarts", "each change restarts containerd twice", _twice, ("edited",)),
    Defect(
        "kill-retrier-off",
        "nobody kills again what an outage has saved",
        swapped(Kills, "_kill", _nothing),
        OUTAGES,
        60,
    ),
    Defect("attempts-unlimited", "an install is tried for ever", swapped(moving, "MAX_ATTEMPTS", 1_000_000), PAYLOADS),
    Defect(
        "no-grace",
        "a sleeping payload is deleted with no grace at all",
        swapped(leftovers, "grace", lambda facts, pod: 0),
        ("edited", "deleted-and-back"),
    ),
    Defect(
        "two-runtimes",
        "a payload of another runtime does not count",
        all_of(
            swapped(World, "pods_elsewhere", lambda self, node, runtime: False),
            swapped(goals, "at_work_elsewhere", lambda node, runtime: []),
        ),
        ("edited", "deleted-and-back"),
    ),
    Defect(
        "no-finalizer",
        "a NodeRuntime may go before its nodes are clean",
        swapped(RuntimeReconciler, "_add_finalizer", _same),
        ("deleted", "deleted-and-back"),
    ),
    Defect(
        "label-left",
        "the label by which a payload said it is done stays",
        _altered_patch(_label_left),
        ("edited", "deleted-and-back"),
    ),
    Defect(
        "nothing-runs",
        "the agent does not look whether a payload still runs",
        swapped(Worker, "_nothing_runs", _nothing),
        (*OUTAGES, "edited"),
    ),
    Defect(
        "users-ignored",
        "nobody looks whether pods use a handler that is to go",
        all_of(swapped(use, "_users", lambda facts, handlers: ()), swapped(Gate, "nobody_uses", _nothing)),
        ("workload", "deleted-and-back"),
    ),
    Defect(
        "unlooked-at",
        "a table is written twice, and nobody looks at what would come of it",
        all_of(
            swapped(planning, "_text", _doubled(planning._text)),
            swapped(planning, "predict", lambda snapshot, base, ours, now: now),
        ),
        ("edited",),
    ),
    Defect(
        "comments-lost",
        "an edit of containerd's configuration drops comments of others",
        all_of(
            swapped(blocks, "put", _without_comments(blocks.put)),
            swapped(blocks, "take", _without_comments(blocks.take)),
        ),
        ("comment", "edited"),
    ),
    Defect(
        "lost-is-ready",
        "a node counts as ready by its stage, whatever its containerd serves",
        swapped(Outlook, "serves", property(lambda self: self.view.done)),
        ("vendor-rewrite", "reformatted", "edited"),
    ),
    Defect(
        "same-attempt",
        "what has failed is tried again under the number of the try before",
        swapped(moving, "next_attempt", _same_attempt),
        PAYLOADS,
    ),
    Defect(
        "evidence-first",
        "a pod that has ended is deleted before its result is on the Node",
        swapped(work, "_finished", lambda facts, state, pod, phase, now: EndPod(pod.uid, pod.stage, 1)),
        ("edited",),
    ),
    Defect(
        "missing-is-done",
        "a step whose revision somebody deleted counts as one without a phase",
        swapped(waits, "missing", lambda *_: None),
        ("revision-deleted", "deleted", "edited", "payload-late"),
    ),
    Defect(
        "carried-over",
        "what a node had of the last revision counts as progress of the next one",
        swapped(outlooks, "outdate", lambda *_: None),
        ("edited",),
    ),
    Defect(
        "uncut",
        "a payload's log goes into annotations and conditions as long as it is",
        _uncut(),
        PAYLOADS,
    ),
)
"""Every planted defect."""
