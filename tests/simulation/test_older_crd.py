"""A controller over a CRD of the release before: what that one does not know is not written again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.sim import kinds
from reconciler.sim.loops import BINARY, manifest, phase

Drive = Callable[..., None]


def test_a_column_that_the_crd_drops_is_written_once(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = kinds.NODERUNTIMES.schema
    assert schema is not None
    monkeypatch.delitem(schema["properties"]["status"]["properties"], "summary")

    async def main(s: Any) -> None:
        def writes() -> int:
            return sum(1 for a in s.cluster.server.audit if a.method == "PATCH" and a.target.kind is kinds.NODERUNTIMES)

        await s.create()
        await s.says("Available", "True", "AllNodesReady")
        await s.says("Progressing", "False", "Complete")
        await asyncio.sleep(5)
        before = writes()
        await asyncio.sleep(120)
        assert writes() == before
        assert "summary" not in s.status()

    drive(main)


def test_the_columns_follow_the_nodes(drive: Drive) -> None:
    async def main(s: Any) -> None:
        await s.create(manifest(install=phase("seconds=5", f"drop={BINARY}")))
        await s.until(lambda: s.status().get("summary") == {"ready": "0/2", "stage": "install"})
        await s.until(lambda: s.status().get("summary") == {"ready": "2/2", "stage": "ready"})

    drive(main)
