"""What a schema of an older release lets through is told, touches no node, and is forgotten when it is reverted."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.sim import clock
from tests.simulation.operations import fields, snapshot
from tests.simulation.operations.model import base, phase
from tests.simulation.operations.operations import Edits
from tests.simulation.operations.search import edits_of
from tests.simulation.operations.values import rows
from tests.simulation.operations.walk import MEMORY, Lab, condition, edited, lab, now

NODES = {"node-1": {"pool": "a"}, "node-2": {}}
LOOK = 30.0
"""Seconds in which a controller that goes by a wrong value would have begun."""
PHASE = "phases.install"
"""The others have the same type."""


def wrong() -> Iterator[tuple[str, Edits]]:
    """Every field, with every value that the schema refuses or the controller is to find."""
    for path in fields.paths():
        if path.startswith("phases.") and not path.startswith(PHASE):
            continue
        for value in fields.refused(path):
            yield f"{path}: {value!r:.40}", edits_of(path, value)
        for value in rows("kata")[path].told:
            yield f"{path}: {value!r:.40}", edits_of(path, value)


def test_what_an_older_crd_lets_through_is_told_and_touches_nothing() -> None:
    async def main(root: Path) -> None:
        async with lab(root, NODES, seed=1) as made:
            spec = {**base("kata"), "phases": {**base("kata")["phases"], "preInstall": phase("kata", "preInstall")}}
            await made.create("kata", spec)
            await made.settle()
            made.cluster.server.knobs.schema = False
            before = snapshot.nodes_only(snapshot.take(made.cluster, made.model))
            found = []
            for name, edits in wrong():
                if what := await _tried(made, spec, edits, before):
                    found.append(f"{name}: {what}")
            assert found == [], "\n".join(found)

    with tempfile.TemporaryDirectory(prefix="ops-", dir=MEMORY) as root:
        clock.run(main(Path(root)))


async def _tried(made: Lab, spec: Any, edits: Edits, before: snapshot.Snapshot) -> str:
    """What is not as it must be; "" when all is."""
    bad = edited("kata", spec, edits)
    await made.write("kata", spec, bad)
    told = await _within(made, "True")
    await asyncio.sleep(LOOK)
    message = condition(made, "kata", "Degraded").get("message", "")
    touched = snapshot.difference(snapshot.nodes_only(snapshot.take(made.cluster, made.model)), before)
    await made.write("kata", bad, spec)
    healed = await _within(made, "False")
    if not told or not message:
        return "nothing says so"
    if touched:
        return f"a node is touched: {touched}"
    return "" if healed else "told of after the revert"


async def _within(made: Lab, status: str, limit: float = 60.0) -> bool:
    begun = now()
    while condition(made, "kata", "Degraded").get("status") != status:
        if now() - begun > limit:
            return False
        await asyncio.sleep(0.5)
    return True
