"""No phase pod is made or killed while containerd is known to be away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from reconciler.api import names
from reconciler.sim import kinds
from reconciler.sim.invariants.base import (
    CONTROLLER,
    Bounded,
    Invariant,
    Sent,
    Surroundings,
    Write,
    is_phase_pod,
)
from reconciler.sim.kinds import Object

KNOWN_AFTER = 2.0
"""Seconds of an outage after which a live agent has reported it to an API server that answers, and a controller that
hears it knows."""
_POD = re.compile(r"^/api/v1/namespaces/[^/]+/pods/([^/?]+)$")


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Meta(msgspec.Struct):
    name: str = ""


class _Node(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Nodes(msgspec.Struct):
    items: list[_Node] = []


class _Line(msgspec.Struct):
    object: _Node = msgspec.field(default_factory=_Node)
    type: str = ""


class Barrier(Invariant):
    """No phase pod is made, or killed with grace, on facts that showed a closed barrier.

    The facts are those that the API server has delivered to this very controller, by watch or answer, before it sends
    the request: the condition ContainerdServing of the node. And, whatever it was told: not after containerd has been
    away for 2 s, if all that time the agent lived and got its answers from the API server, and so did the controller.
    """

    name = "barrier"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._told: Bounded[tuple[str, str], str] = Bounded(20_000)
        """User and node → the condition's status as it was delivered last."""
        self._in_pieces: set[str] = set()
        """Users whose watches come cut in the middle of lines: what they know is not known until their next list."""

    def heard(self, user: str, method: str, path: str, data: bytes) -> Iterator[str]:
        if not user.startswith(CONTROLLER) or not path.startswith("/api/v1/nodes"):
            return
        if method == "WATCH" and not (data.startswith(b"{") and data.endswith(b"\n")):
            self._in_pieces.add(user)
        elif path.rstrip("/").endswith("/nodes") and method == "GET":
            self._in_pieces.discard(user)
        for node in _nodes(method, path, data):
            found = (c.status for c in node.status.conditions if c.type == names.SERVING_CONDITION)
            self._told.put((user, node.metadata.name), next(found, ""))
        yield from ()

    def sent(self, step: Sent) -> Iterator[str]:
        if not step.by.startswith(CONTROLLER) or "/pods" not in step.path or step.method not in ("POST", "DELETE"):
            return
        touched = self._made(step) if step.method == "POST" else self._killed(step)
        if touched is None:
            return
        node, pod, what = touched
        if step.by in self._in_pieces:
            return
        if (told := self._told.get((step.by, node))) in ("False", "Unknown"):
            yield f"{node}: phase pod {pod} was {what} by {step.by}, which knew that ContainerdServing is {told}"

    def wrote(self, step: Write) -> Iterator[str]:
        if step.kind is not kinds.PODS or step.new is None or not is_phase_pod(step.new) or not step.of_controller:
            return
        what = "made" if step.old is None else "killed" if _begins_to_end(step) else ""
        node = step.new["spec"]["nodeName"]
        machine = self.around.machine(node)
        if not what or machine is None or machine.daemon.away <= KNOWN_AFTER:
            return
        if self.around.agent_lives(node, KNOWN_AFTER) and self.around.untroubled(step.by, KNOWN_AFTER):
            away = machine.daemon.away
            yield f"{node}: phase pod {step.name} was {what} while containerd had been away for {away:.1f} s"

    def _made(self, step: Sent) -> tuple[str, str, str] | None:
        body = msgspec.json.decode(step.body or b"{}")
        if not is_phase_pod(body) or "dryRun" in step.query:
            return None
        return body["spec"].get("nodeName", ""), body["metadata"].get("name", ""), "made"

    def _killed(self, step: Sent) -> tuple[str, str, str] | None:
        found = _POD.match(step.path)
        options = msgspec.json.decode(step.body or b"{}")
        pod = None if found is None else self._pod(unquote(found.group(1)))
        if pod is None or not is_phase_pod(pod) or options.get("gracePeriodSeconds") == 0:
            return None
        return pod["spec"]["nodeName"], pod["metadata"]["name"], "killed"

    def _pod(self, name: str) -> Object | None:
        record = self.around.cluster.server.store.get(kinds.PODS, (self.around.cluster.options.namespace, name))
        return None if record is None else record.object


def _begins_to_end(step: Write) -> bool:
    before = ((step.old or {}).get("metadata") or {}).get("deletionGracePeriodSeconds")
    after = ((step.new or {}).get("metadata") or {}).get("deletionGracePeriodSeconds")
    return before is None and bool(after)


def _nodes(method: str, path: str, data: bytes) -> Iterator[_Node]:
    """What an answer or a piece of a watch says of Nodes; a piece that is cut off says nothing."""
    try:
        if method == "WATCH":
            for line in data.splitlines():
                if b'"BOOKMARK"' not in line[:30]:
                    yield msgspec.json.decode(line, type=_Line).object
        elif path.rstrip("/").endswith("/nodes"):
            yield from msgspec.json.decode(data, type=_Nodes).items
        else:
            yield msgspec.json.decode(data, type=_Node)
    except msgspec.MsgspecError:
        return
