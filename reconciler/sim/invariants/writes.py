"""Who may write what to the API server, how much, and how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from reconciler.api import names
from reconciler.sim import kinds
from reconciler.sim.invariants.base import AGENT, CONTROLLER, Invariant, Sent, Surroundings, Write, states
from reconciler.sim.kinds import Object
from reconciler.sim.requests import Request

LEASE_SECONDS = 10.0
"""Until a Lease that is not renewed is over: `leaseDurationSeconds` of the controller."""
MINUTE = 60.0
AGENT_REQUESTS = 240
"""A minute by one agent: 60 reports (20 in 20 s), each tried four times."""
CONTROLLER_REQUESTS = 600
"""A minute by one controller for no node at all: the Lease, resyncs, status once a second, questions before a start."""
CONTROLLER_REQUESTS_PER_NODE = 240
"""And for each node: 16 steps, each with its questions and its retries, some times over."""
MESSAGE_MAX = 600
"""Characters of a condition's message: 256 of a cause, three waits, and the command that says more."""
FAILED_MAX = 20
CAUSE_MAX = 256
"""Characters of a message in a state annotation."""
STATE_MAX = 5120
"""Characters of one state annotation: 256 of a message, each of which JSON may write in six, eight label keys of 317,
and 768 of all else."""
REPORT_MAX = 65_536
ANNOTATIONS_MAX = 262_144


class OnlyTheLeader(Invariant):
    """No write by a controller that does not hold the Lease.

    Judged when the request leaves: the Lease names this controller and was renewed less than 10 s ago, by the server's
    time. What was sent before it was lost may arrive late. Everybody may read, rehearse (dry run) and campaign.
    Whoever held a Lease that somebody else deleted may go on for the rest of those 10 s: a replica that began after
    that cannot know, and makes it anew at once.
    """

    name = "only-the-leader"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._holder = ""
        self._renewed = 0.0
        for lease in around.objects(kinds.LEASES):
            self._holder, self._renewed = lease["spec"].get("holderIdentity") or "", around.now
        self._deprived: tuple[str, float] = ("", 0.0)
        """Who held the Lease that somebody deleted, and when it was renewed last."""

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is kinds.LEASES and step.name == names.LEASE_NAME:
            if step.new is None and not step.of_controller:
                self._deprived = self._holder, self._renewed
            self._holder = "" if step.new is None else step.new["spec"].get("holderIdentity") or ""
            self._renewed = self.around.now
        yield from ()

    def sent(self, step: Sent) -> Iterator[str]:
        if step.method == "GET" or not step.by.startswith(CONTROLLER) or "dryRun" in step.query:
            return
        if "/leases" in step.path:
            return
        who = step.by.removeprefix(CONTROLLER)
        held = ((self._holder, self._renewed), self._deprived)
        if not any(_is(holder, who) and self.around.now - since <= LEASE_SECONDS for holder, since in held):
            whose = self._holder or "nobody"
            age = self.around.now - self._renewed
            yield f"{step.by} sent {step.method} {step.path}, but the Lease was {whose}'s, renewed {age:.1f} s ago"


def _is(holder: str, who: str) -> bool:
    """Whether a pod of that replica holds it."""
    return holder == who or holder.startswith(f"{who}-")


class Fenced(Invariant):
    """Every write to a Node by a controller carries a precondition: its resourceVersion or its UID.

    An agent's report carries none: it writes what it alone may write, about the machine that it runs on.
    """

    name = "fenced"

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is not kinds.NODES or not step.of_controller or step.request is None:
            return
        body = step.body()
        asked = body.get("preconditions") or body.get("metadata") or {}
        if not asked.get("resourceVersion") and not asked.get("uid"):
            yield f"{step.by} wrote to {step.name} without a precondition: {step.request.method} {step.request.path}"


class BoundedLoad(Invariant):
    """Requests of ours in a minute stay below a bound, under faults as well: nothing loops hot.

    Counted as they are answered, watches included: 240 by an agent; 600, and 240 for each node, by a controller.
    """

    name = "bounded-load"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._counts: Counter[str] = Counter()
        self._begun = 0.0

    def answered(self, request: Request, status: int) -> Iterator[str]:
        if self.around.now - self._begun >= MINUTE:
            self._counts.clear()
            self._begun = self.around.now
        if request.user.startswith(AGENT):
            bound = AGENT_REQUESTS
        elif request.user.startswith(CONTROLLER):
            bound = CONTROLLER_REQUESTS + CONTROLLER_REQUESTS_PER_NODE * len(self.around.cluster.nodes)
        else:
            return
        self._counts[request.user] += 1
        if self._counts[request.user] == bound + 1:
            last = f"{request.method} {request.path}"
            yield f"{request.user} sent more than {bound} requests within a minute, the last one {last}"


class BoundedText(Invariant):
    """What we write stays within its limits: conditions, the status, and our annotations.

    A condition's message has 600 characters at most, `status.failed` 20 entries, a state annotation 5 KiB, with 256
    characters of a message, a report 64 KiB, and all annotations of a Node 256 KiB, if we added the last one. Of Events
    the server sees to it.
    """

    name = "bounded-text"

    def wrote(self, step: Write) -> Iterator[str]:
        if not step.ours or step.new is None:
            return
        if step.kind is kinds.NODERUNTIMES:
            yield from self._status(step.name, step.new.get("status") or {})
        elif step.kind is kinds.NODES:
            yield from self._node(step.name, step.new)

    def _status(self, name: str, status: dict[str, Any]) -> Iterator[str]:
        for found in status.get("conditions") or ():
            yield from _too_long(f"{name}: condition {found.get('type')}", found.get("message", ""), MESSAGE_MAX)
        if len(status.get("failed") or ()) > FAILED_MAX:
            yield f"{name}: status.failed has {len(status['failed'])} entries"

    def _node(self, name: str, node: Object) -> Iterator[str]:
        told = node["metadata"].get("annotations") or {}
        for key, text in told.items():
            if key.startswith(names.STATE_ANNOTATION_PREFIX):
                yield from _too_long(f"{name}: {key}", text, STATE_MAX)
        for runtime, state in states(node).items():
            if state.error is not None:
                yield from _too_long(f"{name}: error of {runtime}", state.error.message, CAUSE_MAX)
        yield from _too_long(f"{name}: report", told.get(names.REPORT_ANNOTATION, ""), REPORT_MAX)
        whole = sum(len(key) + len(text) for key, text in told.items())
        if whole > ANNOTATIONS_MAX:
            yield f"{name}: annotations have {whole} bytes"


def _too_long(what: str, text: str, limit: int) -> Iterator[str]:
    if len(text) > limit:
        yield f"{what} has {len(text)} characters, {limit} are allowed: {text[:80]}…"
