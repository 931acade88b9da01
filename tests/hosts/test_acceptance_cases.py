"""The acceptance cases of `reconciler config` with every release: real trees, real daemons.

They are kept beside this repository; `ACCEPTANCE` names their `run.py` (`make hosts` looks for it).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = os.environ.get("ACCEPTANCE", "")
TIMEOUT = 3000
"""Seconds for all cases with one release; about 100 on two idle cores."""


def restore_links(folder: Path) -> list[Path]:
    """Make links again of files that hold nothing but the relative path of a file: some copies lose links."""
    restored = []
    for path in folder.rglob("*.toml"):
        if path.is_symlink() or path.stat().st_size > 200:
            continue
        text = path.read_text(errors="replace")
        if text.startswith("../") and "\n" not in text and (path.parent / text).is_file():
            path.unlink()
            path.symlink_to(text)
            restored.append(path)
    return restored


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`run.py` beside a copy of its cases."""
    if not RUNNER:
        pytest.fail("ACCEPTANCE must name the run.py of the acceptance cases; `make hosts` looks for it")
    source = Path(RUNNER).resolve()
    cases = tmp_path_factory.mktemp("acceptance") / "cases"
    shutil.copytree(source.parent, cases, symlinks=True)
    restore_links(cases)
    return cases / source.name


def test_every_case(runner: Path, release: str, containerd: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    argv = [sys.executable, str(runner), "--reconciler", f"{sys.executable} -m reconciler", "--jobs", "2"]
    argv += ["--containerd", f"{release}={containerd}", "--json", str(results)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    print(done.stdout[-2000:], done.stderr[-2000:])
    found = json.loads(results.read_text())
    assert [f"{one['id']}: {one['why']}" for one in found if not one["passed"]] == []
    assert len(found) > 50
