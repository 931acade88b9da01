"""Debian packages that the harness needs on this machine; only missing ones are installed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from tests.cluster.command import run

NEEDED = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
"""Command → package that brings it."""


def ensure(needed: Mapping[str, str] = NEEDED) -> None:
    """Raises CommandFailed when apt cannot install what is missing."""
    missing = sorted({package for command, package in needed.items() if shutil.which(command) is None})
    if not missing:
        return
    noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], env=noninteractive, timeout=300)
    run(["apt-get", "install", "-qy", "--no-install-recommends", *missing], env=noninteractive, timeout=900)
