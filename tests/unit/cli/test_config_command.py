"""`reconciler config` as a program: its JSON, its exit status, and how little it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MANIFEST = """apiVersion: runtime-reconciler.io/v1alpha1
kind: NodeRuntime
metadata: {name: kata}
spec: {handlers: [{name: kata, runtimeType: io.containerd.kata.v2}]}
"""
DROP_IN = "/etc/containerd/conf.d/runtime-reconciler-kata.toml"
CONFIG = "/etc/containerd/config.toml"


def run(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "reconciler", "config", *argv, "--root", str(root)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = tmp_path / "host" / CONFIG.lstrip("/")
    config.parent.mkdir(parents=True)
    config.write_text("version = 3\n")
    (tmp_path / "kata.yaml").write_text(MANIFEST)
    return tmp_path / "host"


def test_apply_and_remove_answer_with_one_json_object(root: Path) -> None:
    options = ("--containerd-version", "2.2.9", "--output", "json")
    applied = run(root, "apply", "--runtime", str(root.parent / "kata.yaml"), *options)
    answer = json.loads(applied.stdout)
    assert (applied.returncode, answer["outcome"], answer["reason"]) == (0, "changed", None)
    assert answer["handlers"] == ["kata", "runc"]
    assert [(file["path"], file["action"]) for file in answer["files"]] == [(DROP_IN, "created"), (CONFIG, "edited")]
    removed = run(root, "remove", "--name", "kata", *options)
    assert (removed.returncode, json.loads(removed.stdout)["outcome"]) == (0, "changed")
    assert (root / CONFIG.lstrip("/")).read_text() == "version = 3\n"


def test_a_plan_shows_the_difference_and_writes_nothing(root: Path) -> None:
    planned = run(root, "plan", "--runtime", str(root.parent / "kata.yaml"), "--containerd-version", "2.2.9")
    assert planned.returncode == 0
    assert (
        '+imports = ["/etc/containerd/conf.d/runtime-reconciler-*.toml"] # added by runtime-reconciler'
        in planned.stdout
    )
    assert not (root / DROP_IN.lstrip("/")).exists()


def test_without_a_version_the_units_own_binary_and_file_are_looked_at(root: Path) -> None:
    files = {
        "opt/bin/containerd": "#!/bin/sh\necho containerd github.com/containerd/containerd v1.7.34 abc\n",
        "etc/site.toml": "version = 9\n",
        "usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n",
        "etc/systemd/system/containerd.service.d/10-site.conf": "[Service]\nExecStart=\n"
        "ExecStart=-/opt/bin/containerd \\\n  --config /etc/site.toml\n",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "opt/bin/containerd").chmod(0o755)
    checked = run(root, "check", "--output", "json")
    (finding,) = json.loads(checked.stdout)["findings"]
    assert (finding["code"], finding["path"]) == ("UnsupportedVersion", "/etc/site.toml")
    assert "not known to containerd 1.7.34" in finding["message"]


def test_a_broken_file_is_status_1_with_file_and_line(root: Path) -> None:
    (root / CONFIG.lstrip("/")).write_text("version = 3\nimports = [ , ]\n")
    checked = run(root, "check", "--containerd-version", "2.2.9", "--output", "json")
    (finding,) = json.loads(checked.stdout)["findings"]
    assert checked.returncode == 1
    assert (finding["code"], finding["path"], finding["line"], finding["repairable"]) == (
        "InvalidToml",
        CONFIG,
        2,
        True,
    )


def test_a_person_reads_where_it_is_and_what_to_do(root: Path) -> None:
    (root / CONFIG.lstrip("/")).write_text("version = 3\nimports = [ , ]\n")
    checked = run(root, "check", "--containerd-version", "2.2.9")
    line = checked.stdout.splitlines()[1]
    assert line.startswith(f"  InvalidToml {CONFIG}:2: ")
    assert line.endswith(" (`repair` mends it)")


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (("check", "--containerd-version", "3.0.0"), 1, "containerd 3.0.0 is not supported"),
        (("check", "--containerd-version", "new"), 1, "not a version of containerd: 'new'"),
        (("check", "--containerd", "/gone", "--containerd-version", "2.0.0"), 2, "not both"),
        (("check", "--containerd", "/gone"), 2, "cannot be asked for its version"),
        (("remove", "--name", "../x", "--containerd-version", "2.2.9"), 1, "cannot be the name of a NodeRuntime"),
        (("apply", "--containerd-version", "2.2.9"), 2, "--runtime"),
    ],
)
def test_what_cannot_be_done_is_said(argv: tuple[str, ...], status: int, said: str, root: Path) -> None:
    done = run(root, *argv)
    assert done.returncode == status
    assert said in " ".join((done.stdout + done.stderr).replace("│", " ").split())


def test_it_loads_nothing_of_the_other_commands(root: Path) -> None:
    code = """
import sys
sys.argv = ["reconciler", "config", "check", "--containerd-version", "2.2.9", "--root", sys.argv[1]]
from reconciler.__main__ import main
try:
    main()
finally:
    heavy = ("kubernetes_asyncio", "aiohttp", "grpclib", "dbus_fast", "rich", "reconciler.controller", "reconciler.sim")
    print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1] == "[]"


BEFORE = {
    DROP_IN: """# Made by runtime-reconciler; `reconciler config remove` takes it away.
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]
  runtime_type = "io.containerd.kata.v2"
""",
    CONFIG: """version = 3
imports = ["/etc/containerd/conf.d/runtime-reconciler-*.toml"] # added by runtime-reconciler
""",
    "/var/lib/runtime-reconciler/journal.json": '{"pending":null,"runtimes":{"kata":{"handlers":["kata"],"uid":""}}}',
}
"""What 0.1.0 leaves on a host of containerd 2.2."""


def test_what_the_release_before_wrote_is_left_as_it_is_and_can_be_removed(root: Path) -> None:
    """An upgrade in the middle of a rollout applies it again: a change of a comment would cost a restart."""
    for path, text in BEFORE.items():
        there = root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)
    options = ("--containerd-version", "2.2.9", "--output", "json")
    applied = run(root, "apply", "--runtime", str(root.parent / "kata.yaml"), *options)
    assert (json.loads(applied.stdout)["outcome"], json.loads(applied.stdout)["files"]) == ("unchanged", [])
    removed = run(root, "remove", "--name", "kata", *options)
    assert json.loads(removed.stdout)["outcome"] == "changed"
    assert not (root / DROP_IN.lstrip("/")).exists()
    assert (root / CONFIG.lstrip("/")).read_text() == "version = 3\n"
