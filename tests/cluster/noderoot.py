"""Root directories made by debootstrap once: one for the nodes, one as the base of the product's image."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.cluster import paths
from tests.cluster.command import run

SUITE = "bookworm"
_NODE = (
    "systemd,systemd-sysv,dbus,containerd,runc,containernetworking-plugins,iptables,iproute2,kmod,procps,mount,"
    "ca-certificates,conntrack,ethtool,socat"
)
_IMAGE_BASE = "python3,python3-venv"
_NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/info",
    "var/lib/apt/lists",
    "var/cache/apt",
)


def node_root() -> Path:
    """A root with systemd, containerd 1.6.20 and CNI plugins; to be copied per node."""
    return _make("noderoot", _NODE)


def image_base() -> Path:
    """A root with Python and pip: the base image of the product where there is no registry."""
    return _make("imagebase", _IMAGE_BASE)


def _make(name: str, include: str) -> Path:
    key = hashlib.sha256(f"{SUITE} {include}".encode()).hexdigest()[:8]
    root = paths.CACHE / f"{name}-{SUITE}-{key}"
    if root.exists():
        return root
    print(f"debootstrap of {root.name} …", flush=True)
    unfinished = root.with_name(root.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    run(["debootstrap", "--variant=minbase", f"--include={include}", SUITE, unfinished], timeout=1200)
    for folder in _NOT_NEEDED:
        shutil.rmtree(unfinished / folder, ignore_errors=True)
    unfinished.rename(root)
    return root
