"""Each test of this folder that asks for `containerd` runs with every pinned release."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit/hostconfig")]

import containerds  # noqa: E402


@pytest.fixture(params=containerds.VERSIONS)
def release(request: pytest.FixtureRequest) -> str:
    """The version of a containerd; a test that names (shape, release) pairs of its own goes before."""
    return str(request.param)


@pytest.fixture
def containerd(release: str) -> Path:
    """The real binary of `release`."""
    return containerds.ensure(release)
