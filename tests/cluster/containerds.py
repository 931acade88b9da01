"""The releases of containerd as a node's own daemon: binary, shim and a configuration in the release's dialect."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.command import wait_until
from tests.cluster.images import PAUSE
from tests.cluster.node import CONTAINERD_CONFIG, Node
from tests.hosts import containerds

_MAIN = "etc/containerd/config.toml"
_DROP_INS = "etc/containerd/conf.d"

_WITH_RUNC = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
"""As kubeadm's guides have it for 1.7: the handlers are written out."""

_IMPORTING = f"""\
version = {{version}}
imports = ['/etc/containerd/conf.d/*.toml']

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    {{bin_dir}}
    conf_dir = '/etc/cni/net.d'
"""
"""As `config default` of 2.x writes: single quotes, and a directory of drop-ins."""

_SOMEBODYS = """\
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = false
"""


@dataclass(frozen=True)
class Release:
    """One containerd; `main` is its config.toml, `drop_ins` what somebody else has put beside it."""

    version: str
    main: str
    drop_ins: Mapping[str, str] = field(default_factory=dict)

    def ensure(self) -> dict[str, Path]:
        """Where its programs go on a node, and whence they come; built when missing."""
        return {f"usr/bin/{name}": containerds.ensure(self.version, name) for name in _PROGRAMS}


_PROGRAMS = (containerds.DAEMON, containerds.SHIM)
_RUNC = {"10-runc.toml": _SOMEBODYS}
RELEASES = {
    release.version: release
    for release in (
        Release("1.6.20", CONTAINERD_CONFIG),
        Release("1.7.34", _WITH_RUNC),
        Release("2.0.11", _IMPORTING.format(version=3, bin_dir="bin_dir = '/usr/lib/cni'"), _RUNC),
        Release("2.2.9", _IMPORTING.format(version=3, bin_dir="bin_dirs = ['/usr/lib/cni']"), _RUNC),
        Release("2.3.4", _IMPORTING.format(version=4, bin_dir="bin_dirs = ['/usr/lib/cni']"), _RUNC),
    )
}


def upgrade(node: Node, release: Release) -> None:
    """As a package does it: new files, then one restart. Running pods stay; its state on disk is kept.

    Upwards only: containerd promises nothing for metadata that a later release has written.
    """
    for path, binary in release.ensure().items():
        target = node.root / path
        unfinished = target.with_name(target.name + ".new")
        shutil.copy2(binary, unfinished)
        unfinished.replace(target)
    shutil.rmtree(node.root / _DROP_INS, ignore_errors=True)
    (node.root / _MAIN).write_text(release.main)
    for name, text in release.drop_ins.items():
        (node.root / _DROP_INS).mkdir(exist_ok=True)
        (node.root / _DROP_INS / name).write_text(text)
    node.run("systemctl", "restart", "containerd")
    runs = f"containerd {release.version} on {node.name}"
    wait_until(lambda: release.version in node.crictl("version", check=False), 30, what=runs)
