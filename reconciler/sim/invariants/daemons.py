"""Containerd: what we write starts, and is restarted for once."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from reconciler.api.node import AGENT_STAGES
from reconciler.sim import config
from reconciler.sim.containerd import Phase, Start
from reconciler.sim.invariants.base import Invariant, Surroundings, states
from reconciler.sim.node import SimNode

OUR_STARTS = ("agent", "dead-man")
"""Initiators that are ours."""
COMMITS = ("rename /", "unlink /", "in place /")
"""How an agent's steps begin that put other bytes in force."""
RESTARTS = 2
"""Of one piece of work: one for the change, one for its undo."""
_BLOCK = re.compile(
    rb"^[ \t]*# runtime-reconciler: begin (\S+).*?^[ \t]*# runtime-reconciler: end \1[ \t]*(?:\r?\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
_IMPORT = re.compile(rb'"[^"\n]*/runtime-reconciler-[^"\n]*"\s*,?\s*')
_MAIN = config.MAIN.lstrip("/")


def foreign_lines(root: Path) -> list[bytes]:
    """What others have written in containerd's main file: lines that are not empty, without blocks and imports of ours.

    Written apart from `reconciler.hostconfig`: the engine that edits must not be its own judge.
    """
    path = root / _MAIN
    if not path.is_file():
        return []
    return [line for line in _IMPORT.sub(b"", _BLOCK.sub(b"", path.read_bytes())).splitlines() if line.strip()]


def blocks(root: Path) -> set[str]:
    """Owners of our blocks in containerd's main file, and of our drop-ins beside it."""
    path = root / _MAIN
    text = path.read_bytes() if path.is_file() else b""
    found = {owner.decode() for owner in _BLOCK.findall(text)}
    for drop_in in (root / _MAIN).parent.rglob("runtime-reconciler-*.toml"):
        found.add(drop_in.stem.removeprefix("runtime-reconciler-"))
    return found


def documents(root: Path) -> object:
    """What containerd's files say, without their layout; the bytes of one that cannot be read."""
    found: dict[str, object] = {}
    for path in sorted((root / _MAIN).parent.rglob("*.toml")):
        data = path.read_bytes()
        try:
            found[str(path.relative_to(root))] = tomllib.loads(data.decode())
        except ValueError:
            found[str(path.relative_to(root))] = data
    return found


def fails_without_us(root: Path) -> bool:
    """Whether containerd would not come up even if nothing of ours were in its main file."""
    with tempfile.TemporaryDirectory() as bare:
        copy = Path(bare) / _MAIN
        copy.parent.mkdir(parents=True)
        copy.write_bytes(b"\n".join(foreign_lines(root)))
        for found in (root / _MAIN).parent.rglob("*.toml"):
            target = Path(bare) / found.relative_to(root)
            if target != copy and not found.name.startswith("runtime-reconciler-"):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(found.read_bytes())
        loaded = config.load(Path(bare))
    return bool(loaded.error or loaded.cri_error)


class OurStarts(Invariant):
    """Nothing that we write fails to start.

    Told of each start of containerd that an agent or its dead-man switch asked for. A cause outside excuses a failure:
    what others have written would not start either, or has changed since our last write; or this containerd fails
    whatever is written (`Start.outside`), or on a handler that its configuration may name (`Daemon.breaks`).
    """

    name = "our-starts"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._written: dict[str, list[bytes]] = {}
        """Node → what others had written when an agent committed last."""

    def traced(self, node: SimNode, step: str) -> Iterator[str]:
        if step.startswith(COMMITS):
            self._written[node.name] = foreign_lines(node.root)
        yield from ()

    def started(self, node: SimNode, start: Start) -> Iterator[str]:
        if not start.error or start.outside or start.initiator not in OUR_STARTS:
            return
        if node.daemon.breaks and node.daemon.breaks in start.error:
            return
        if self._written.get(node.name, []) != foreign_lines(node.root) or fails_without_us(node.root):
            return
        yield f"{node.name}: the {start.initiator} started containerd on a configuration that fails: {start.error}"


class OneRestart(Invariant):
    """One restart of containerd per change, and one per undo.

    A daemon that serves is restarted by an agent only if an agent has committed a change to the disk since that daemon
    started, or if others have changed what it would read; and for one piece of work (runtime, stage, revision, attempt)
    twice at most: the change and its undo. A daemon that does not serve may be started for that. Not counted: work in
    which others edited the configuration or restarted containerd, or the agent or the machine died, for what was begun
    is then begun again; and a commit after which the disk refused a step, for then nothing could tell when it was.
    """

    name = "one-restart"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._served: dict[str, bool] = {}
        """Node → whether CRI served right before containerd was stopped last."""
        self._unseen: set[str] = set()
        """Nodes with a commit that no process has read."""
        self._read: dict[str, object] = {}
        """Node → what containerd read when it started last."""
        self._refusals: dict[str, int] = {}
        """Node → steps that its disk had refused by its last commit."""
        self._counts: dict[str, tuple[object, int]] = {}
        """Node → work in hand, and our restarts for it."""

    def traced(self, node: SimNode, step: str) -> Iterator[str]:
        if step.startswith(COMMITS):
            self._unseen.add(node.name)
            self._refusals[node.name] = node.refusals
        yield from ()

    def changed(self, node: SimNode) -> Iterator[str]:
        phase = node.daemon.phase
        if phase is Phase.SERVING:
            self._served[node.name] = True
        elif phase is Phase.STARTING or node.daemon.unit.sub in ("auto-restart", "failed"):
            self._served[node.name] = False
        yield from ()

    def started(self, node: SimNode, start: Start) -> Iterator[str]:
        served, unseen = self._served.pop(node.name, False), node.name in self._unseen
        self._unseen.discard(node.name)
        read = documents(node.root)
        changed = self._read.get(node.name, read) != read
        self._read[node.name] = read
        if start.initiator != "agent":
            self._counts.pop(node.name, None)
            return
        if served and not unseen and not changed and self._refusals.get(node.name, 0) == node.refusals:
            yield f"{node.name}: the agent restarted a containerd that served, and had changed nothing since its start"
        work = self._work(node)
        known, count = self._counts.get(node.name, (None, 0))
        count = count + 1 if known == work else 1
        self._counts[node.name] = (work, count)
        if work is not None and count > RESTARTS:
            yield f"{node.name}: {count} restarts by the agent for {work}"

    def _work(self, node: SimNode) -> object:
        """What the Node asks of its agent; with the agent's life and others' text, a change of which begins anew."""
        for runtime, state in states(self.around.node(node.name)).items():
            if state.stage in AGENT_STAGES:
                life = (id(node.life), hash(tuple(foreign_lines(node.root))))
                return f"{runtime} {state.stage} {state.target} attempt {state.attempt}", life
        return None
