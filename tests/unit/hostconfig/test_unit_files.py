"""What the files of a unit say that it runs, where systemd cannot be asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostconfig_trees import Tree, write

from reconciler.hostconfig import Refused, installed
from reconciler.hostconfig.hostroot import HostRoot

NAME = "containerd.service"
LIB, ETC = f"/usr/lib/systemd/system/{NAME}", f"/etc/systemd/system/{NAME}"
USUAL = b"[Service]\nExecStartPre=-/sbin/modprobe overlay\nExecStart=/usr/bin/containerd\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, ("/usr/bin/containerd", "")),
        ({LIB: USUAL}, ("/usr/bin/containerd", "")),
        ({LIB: USUAL, ETC: b"[Service]\nExecStart=/opt/c -c /x.toml\n"}, ("/opt/c", "/x.toml")),
        ({LIB: USUAL, f"{ETC}.d/a.conf": b"[Service]\nExecStart=\nExecStart=@/opt/c --config=/x\n"}, ("/opt/c", "/x")),
        ({LIB: USUAL, f"{ETC}.d/a.conf": b"[Unit]\nExecStart=/opt/c\n"}, ("/usr/bin/containerd", "")),
        (
            {
                f"{LIB}.d/20.conf": b"[Service]\nExecStart=\nExecStart=/lib\n",
                f"{ETC}.d/20.conf": b"[Service]\nExecStart=\nExecStart=/etc\n",
                f"{LIB}.d/30.conf": b"[Service]\nExecStart=\nExecStart=/last\n",
            },
            ("/last", ""),
        ),
        (
            {LIB: b"[Service]\nExecStart=containerd\n", "/usr/local/bin/containerd": b""},
            ("/usr/local/bin/containerd", ""),
        ),
        ({LIB: b'[Service]\nExecStart="/opt/c\n'}, ("/usr/bin/containerd", "")),
    ],
)
def test_binary_and_file_of_the_next_start(files: Tree, found: tuple[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert installed(HostRoot(tmp_path), NAME) == found


def test_a_distribution_that_brings_its_own_is_refused_with_what_to_give(tmp_path: Path) -> None:
    write(tmp_path, {"/etc/systemd/system/k3s.service": b"[Service]\nExecStart=/usr/local/bin/k3s server\n"})
    with pytest.raises(Refused, match="k3s brings its own containerd: give --containerd-version, and --config /var"):
        installed(HostRoot(tmp_path), NAME)
