"""The fixture of all tests of the agent."""

from __future__ import annotations

import pytest

from tests.unit.agent.bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
