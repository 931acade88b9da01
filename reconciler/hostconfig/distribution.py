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
GENERATED = ("/var/lib/rancher/", "/etc/k0s/", "/run/k0s/", "/etc/cri/")
"""Files that their distribution writes anew: an edit would not last."""
_RENDERED = re.compile(r"(/var/snap/microk8s/[^/]+/args/containerd)\.toml")
"""microk8s renders it at each start from the template beside it, by putting values in place of `${NAME}`."""
_K3S = re.compile(r"/agent/etc/containerd/config\.toml$")
"""k3s and rke2 render it at each start; their data may lie anywhere."""
TOKEN = "${"


@dataclass(frozen=True)
class Kind:
    """How a distribution runs containerd."""

    name: str
    units: tuple[str, ...] = ()
    config: str = ""
    wrapped: bool = False
    """The unit's command is another program, which starts containerd."""
    runs_kubelet: bool = False
    """Of the same unit: it restarts with containerd."""
    restarts_itself: bool = False
    """It restarts containerd when a drop-in changes; a restart of the unit would only add kubelet's."""


PLAIN = Kind("containerd")
KINDS = (
    Kind(
        "k3s",
        ("k3s.service", "k3s-agent.service"),
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        wrapped=True,
        runs_kubelet=True,
    ),
    Kind(
        "rke2",
        ("rke2-server.service", "rke2-agent.service"),
        "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        wrapped=True,
        runs_kubelet=True,
    ),
    Kind(
        "k0s",
        ("k0sworker.service", "k0scontroller.service"),
        "/etc/k0s/containerd.toml",
        wrapped=True,
        runs_kubelet=True,
        restarts_itself=True,
    ),
    Kind(
        "microk8s",
        ("snap.microk8s.daemon-containerd.service",),
        "/var/snap/microk8s/current/args/containerd.toml",
        wrapped=True,
    ),
)
SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
)
"""Of containerd, k3s and rke2, k0s, microk8s."""
_MARKS = (("kind", "/kind/product_name"), ("eks", "/etc/eks"), ("aks", "/etc/kubernetes/azure.json"))
"""Paths that only nodes of that distribution have."""


def socket_of(host: HostRoot) -> str:
    """The first CRI socket that is there, the usual one when none is."""
    return next((socket for socket in SOCKETS if host.exists(socket)), SOCKETS[0])


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


def edited_file(host: HostRoot, config_path: str) -> str:
    """The file to edit for a daemon with that `--config`: itself, or the template that it is rendered from."""
    template = _RENDERED.sub(r"\1-template.toml", config_path)
    return template if template != config_path and host.exists(template) else config_path


def is_rendered_by_k3s(config_path: str) -> bool:
    """By k3s or rke2, from a template that can be extended (`template`)."""
    return _K3S.search(config_path) is not None


def is_generated(config_path: str) -> bool:
    """True for a file that its distribution writes anew: an edit would not last."""
    rendered = _RENDERED.fullmatch(config_path) is not None or is_rendered_by_k3s(config_path)
    return rendered or config_path.startswith(GENERATED)


def no_place(config_path: str) -> Refused:
    """The refusal for a generated file that offers no place for our tables."""
    text = f"{config_path} is generated at each start and imports no directory of drop-ins: an edit would not last; "
    if is_rendered_by_k3s(config_path):
        text += "update k3s or rke2 to a release with containerd 1.7 or later, whose template can be extended"
    else:
        text += "add the runtime by the means of the distribution"
    return Refused(Code.UNSUPPORTED_DISTRIBUTION, text)


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
