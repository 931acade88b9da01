"""The acceptance cases of `reconciler config` with every release: real trees, real daemons.

They are kept beside this repository; `ACCEPTANCE` names their `run.py` (`make hosts` looks for it).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNNER = os.environ.get("ACCEPTANCE", "")
WARM = str(Path(__file__).with_name("warm.py"))
TIMEOUT = 3000
"""Seconds for all cases with one release, on a machine that has much else to do."""


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


@pytest.fixture(scope="session")
def reconciler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command line of the program, which does not import everything anew at each call."""
    path = str(tmp_path_factory.mktemp("warm") / "s")
    server = subprocess.Popen([sys.executable, WARM, "--serve", path], stdout=subprocess.PIPE)
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    yield f"{sys.executable} -I -S {WARM} {path}"
    server.terminate()
    server.wait(10)
    server.stdout.close()


def test_every_case(runner: Path, reconciler: str, release: str, containerd: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    argv = [sys.executable, str(runner), "--reconciler", reconciler, "--jobs", "2"]
    argv += ["--containerd", f"{release}={containerd}", "--json", str(results)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    print(done.stdout[-2000:], done.stderr[-2000:])
    found = json.loads(results.read_text())
    assert [f"{one['id']}: {one['why']}" for one in found if not one["passed"]] == []
    assert len(found) > 50
