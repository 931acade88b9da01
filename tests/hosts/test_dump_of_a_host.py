"""The dump sees the host as its containerd will: mounts below the root, links, changes; and writes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hostconfig_trees import MAIN, read, write

from reconciler.hostconfig.dump import BinaryDump, DumpRefused, DumpUnavailable

LEVEL = b'version = 2\n[debug]\n  level = "%s"\n'


DUMP = """
import sys
from pathlib import Path
from reconciler.hostconfig import BinaryDump

print(BinaryDump(Path(sys.argv[1]), Path(sys.argv[2]))("", {})["debug"]["level"])
"""
MOUNTS = {
    "a directory": "mount -t tmpfs none {root}/etc && cp -a {root}/other/. {root}/etc",
    "a file": "mount --bind {root}/other/containerd/config.toml {root}/etc/containerd/config.toml",
}


@pytest.mark.parametrize("mount", MOUNTS)
def test_a_mount_below_the_root_is_seen(mount: str, containerd: Path, tmp_path: Path) -> None:
    write(tmp_path, {MAIN: LEVEL % b"info", "/other/containerd/config.toml": LEVEL % b"warn"})
    script = f'{MOUNTS[mount].format(root=tmp_path)} && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", DUMP, str(tmp_path), str(containerd)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "warn\n"


def test_a_change_is_seen_and_the_files_stay(containerd: Path, tmp_path: Path) -> None:
    tree = {
        MAIN: b'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n',
        "/etc/containerd/conf.d/a.toml": LEVEL % b"info",
    }
    write(tmp_path, tree)
    dump = BinaryDump(tmp_path, containerd)
    assert dump("", {"/etc/containerd/conf.d/b.toml": b'[debug]\nformat = "json"\n'})["debug"]["format"] == "json"
    with pytest.raises(DumpRefused):
        dump("", {MAIN: b"[["})
    assert read(tmp_path) == tree


def test_what_cannot_be_run_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(DumpUnavailable):
        BinaryDump(tmp_path, tmp_path / "gone")("", {})
