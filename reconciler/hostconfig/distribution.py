"""Distributions: how they run containerd, and which of them must not be edited this way (design 6.1 and 6.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused

UNSUPPORTED = {
    "bottlerocket": "Bottlerocket renders its configuration from settings: add the runtime there",
    "talos": "Talos takes runtimes as system extensions only",
}
GENERATED = ("/var/lib/rancher/", "/etc/k0s/", "/run/k0s/", "/var/snap/microk8s/", "/etc/cri/")
"""Files that their distribution writes anew: an edit would not last."""


@dataclass(frozen=True)
class Kind:
    """How a distribution runs containerd."""

    name: str
    units: tuple[str, ...] = ()
    config: str = ""
    embedded: bool = False
    """containerd is a child of a unit that does more, kubelet included."""
    restarts_itself: bool = False
    """It restarts containerd when a drop-in changes; a restart of the unit would only add kubelet's."""


PLAIN = Kind("containerd")
KINDS = (
    Kind(
        "k3s",
        ("k3s.service", "k3s-agent.service"),
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        embedded=True,
    ),
    Kind(
        "rke2",
        ("rke2-server.service", "rke2-agent.service"),
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        embedded=True,
    ),
    Kind(
        "k0s",
        ("k0sworker.service", "k0scontroller.service"),
        "/etc/k0s/containerd.toml",
        embedded=True,
        restarts_itself=True,
    ),
)
_MARKS = (("kind", "/kind/product_name"), ("eks", "/etc/eks"), ("aks", "/etc/kubernetes/azure.json"))
"""Paths that only nodes of that distribution have."""


def name_of(host: HostRoot, kind: Kind) -> str:
    """For people; no rule depends on it."""
    if kind is not PLAIN:
        return kind.name
    if _os_id(host) == "cos":
        return "gke"
    return next((name for name, path in _MARKS if host.exists(path)), kind.name)


def refuse_unsupported(host: HostRoot) -> None:
    """Raises Refused(UnsupportedDistribution)."""
    why = UNSUPPORTED.get(_os_id(host))
    if why is not None:
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, why)


def is_generated(config_path: str) -> bool:
    """True for a file that its distribution writes anew: an edit would not last."""
    return config_path.startswith(GENERATED)


def _os_id(host: HostRoot) -> str:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            text = host.read(path).decode(errors="replace")
        except OSError:
            continue
        match = re.search(r"^ID=[\"']?([\w.-]+)", text, re.MULTILINE)
        if match:
            return match.group(1)
    return ""
