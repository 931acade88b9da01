"""What a finished uninstall has left behind, on nodes that came and went and on which others have written."""

from __future__ import annotations

from reconciler.api import names
from reconciler.sim import judge, kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.config import MAIN
from reconciler.sim.node import CONFIG
from reconciler.sim.store import Event

HOSTNAME = "kubernetes.io/hostname"


class Fresh:
    """Taken when nothing is installed; every machine begins with the same disk."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._disk = dict(judge.look(cluster).disks[min(cluster.nodes)])
        self._forgotten: set[str] = set()
        """Nodes whose Node object was deleted with our state on it: the API does not know any more what was installed
        there, and the host's journal tells of containerd only. So the payload's own files may stay."""
        cluster.server.store.written.append(self._seen)

    def left(self) -> list[str]:
        cluster = self._cluster
        labels = {name: {HOSTNAME: name, **self._foreign(name)} for name in cluster.nodes}
        world = judge.World(disks=dict.fromkeys(cluster.nodes, self._disk), labels=labels)
        return [line for line in judge.left_behind(cluster, world) if not self._excused(line)]

    def _foreign(self, node: str) -> dict[str, str]:
        return {
            thing.where: thing.what for thing in self._cluster.foreign if (thing.kind, thing.node) == ("label", node)
        }

    def _excused(self, line: str) -> bool:
        node, _, what = line.partition(": ")
        if node in self._forgotten and what.startswith("/opt/") and what.endswith(" is left"):
            return True
        return what == f"{MAIN} is not as it was" and self._others_edits(node)

    def _others_edits(self, node: str) -> bool:
        """Whether the configuration is the fresh one but for indentation, blank lines, and what others keep there."""
        left = _lines((self._cluster.nodes[node].root / MAIN.lstrip("/")).read_text())
        for thing in self._cluster.foreign:
            if (thing.kind, thing.node, thing.where) == ("text", node, MAIN):
                left = _without(left, _lines(thing.what))
        return left == _lines(CONFIG)

    def _seen(self, kind: kinds.Kind, event: Event) -> None:
        if kind == kinds.NODES and event.new is None and event.old is not None:
            meta = event.old.object["metadata"]
            if any(key.startswith(names.STATE_ANNOTATION_PREFIX) for key in meta.get("annotations") or {}):
                self._forgotten.add(event.key[1])


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _without(lines: list[str], block: list[str]) -> list[str]:
    """`lines` less the first place where `block` stands as a whole."""
    for begin in range(len(lines) - len(block) + 1):
        if lines[begin : begin + len(block)] == block:
            return lines[:begin] + lines[begin + len(block) :]
    return lines
