"""Where the harness keeps what it builds, and what it runs."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
CACHE = Path(os.environ.get("RECONCILER_CACHE", "~/.cache/runtime-reconciler")).expanduser()
"""Binaries and roots, keyed by version; outside the tree, so that a fresh checkout finds them."""
RUN = CACHE / "cluster"
"""The one cluster of this machine: keys, tokens, logs, node roots."""
NODES = RUN / "nodes"
REPORTS = PROJECT / "build" / "e2e"

KUBERNETES = "v1.34.4"
ETCD = "v3.7.3"
CRICTL = "v1.34.0"
HELM = "v4.3.2"

BRIDGE = "rrbr0"
BRIDGE_ADDRESS = "10.213.0.1"
SERVICE_ADDRESS = "10.96.0.1"
API = f"https://{BRIDGE_ADDRESS}:6443"


def binaries(name: str, version: str) -> Path:
    """Folder of the binaries of one module and version."""
    return CACHE / f"{name}-{version}"


KUBECTL = binaries("kubernetes", KUBERNETES) / "kubectl"
HELM_BINARY = binaries("helm", HELM) / "helm"
