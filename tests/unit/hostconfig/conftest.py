"""Fixtures of the engine's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hostconfig_bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A host with a configuration and a running containerd 1.6.20."""
    return Bench(tmp_path)
