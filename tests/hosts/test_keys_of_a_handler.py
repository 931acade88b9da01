"""The keys that the engine takes for known are those of each release's own default."""

from __future__ import annotations

from pathlib import Path

from reconciler.hostconfig import BinaryDump
from reconciler.hostconfig.cri_section import runtime_id
from reconciler.hostconfig.effective import load
from reconciler.hostconfig.handler_keys import known
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.version import parse

EVERY = {"sandbox_mode", "sandboxer", "snapshotter", "io_type", "cgroup_writable", "runtime_root", "runtime_engine"}


def test_known_keys(release: str, containerd: Path, tmp_path: Path) -> None:
    plugin = runtime_id(load(HostRoot(tmp_path), "", parse(release)))
    default = BinaryDump(tmp_path, containerd)("", {})["plugins"][plugin]["containerd"]["runtimes"]["runc"]
    assert {key for key in {*EVERY, *default} if known(key, parse(release))} == set(default)
