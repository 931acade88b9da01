"""Every field of the schema is walked through: a new one fails here until `values` says what it may be."""

from __future__ import annotations

import random

import pytest

from reconciler.api.clock import SystemClock
from reconciler.kube.client import Client
from reconciler.kube.errors import Invalid
from reconciler.kube.resources import NODERUNTIMES
from reconciler.sim.memory import MemoryTransport
from reconciler.sim.server import ApiServer
from tests.simulation.operations import fields
from tests.simulation.operations.model import GONE, base, merge_patch
from tests.simulation.operations.search import edits_of
from tests.simulation.operations.values import Value, rows
from tests.simulation.operations.walk import edited

PATHS = list(fields.paths())


def test_the_paths_are_those_of_the_schema() -> None:
    assert {"nodeSelector", "handlers[].runtimeClass.overhead", "rollout.order[].matchExpressions[].values[]"} < {
        *PATHS
    }
    assert len(PATHS) == len({*PATHS})


def test_every_field_has_good_values_and_none_is_made_up() -> None:
    for runtime in ("kata", "gvisor"):
        found = rows(runtime)
        assert set(PATHS) - set(found) == set(), "say in `values` what the new field may be"
        assert set(found) - set(PATHS) == set(), "no such field"
        assert [path for path, row in found.items() if not row.good] == []


def test_every_field_that_may_be_missing_is_taken_out() -> None:
    def deleted(path: str) -> bool:
        return any(v is GONE or (isinstance(v, Value) and v.value is GONE) for v in rows("kata")[path].good)

    optional = {path for path in PATHS if not path.endswith("[]") and not fields.required(path)}
    assert {path for path in PATHS if deleted(path)} == optional


def test_every_field_has_values_that_the_schema_refuses() -> None:
    assert [path for path in PATHS if not fields.refused(path)] == []


def test_a_field_that_nobody_has_described_is_missed() -> None:
    schema = {**fields.SPEC, "properties": {**fields.SPEC["properties"], "added": {"type": "string"}}}
    assert set(fields.paths(schema)) - set(rows("kata")) == {"added"}


@pytest.mark.parametrize("path", PATHS)
async def test_the_server_takes_the_good_values_and_refuses_the_wrong_ones(path: str) -> None:
    client = Client(MemoryTransport(ApiServer(clock=SystemClock(), rng=random.Random(1)), user="admin"))
    await client.create(NODERUNTIMES, {"metadata": {"name": "kata"}, "spec": base("kata")})
    row = rows("kata")[path]
    for value in (*row.good, *row.told, *row.failing, *row.accepted):
        spec = edited("kata", base("kata"), edits_of(path, value))
        patch = {"spec": merge_patch(base("kata"), spec)}
        await client.patch(NODERUNTIMES, "kata", patch)
        await client.patch(NODERUNTIMES, "kata", {"spec": merge_patch(spec, base("kata"))})
    for value in fields.refused(path):
        spec = edited("kata", base("kata"), edits_of(path, value))
        with pytest.raises(Invalid):
            await client.patch(NODERUNTIMES, "kata", {"spec": merge_patch(base("kata"), spec)})
