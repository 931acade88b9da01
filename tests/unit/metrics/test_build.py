"""The version stands in three places, for three readers, and is one."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import reconciler
from metrics import build

ROOT = Path(__file__).parents[3]


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert build.VERSION == reconciler.__version__ == project["version"]


def test_the_agent_loads_nothing_of_the_standard_library_that_costs_megabytes() -> None:
    script = (
        "import sys, reconciler.agent.main; print(*sorted({'importlib.metadata', 'zipfile', 'csv'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "\n"
