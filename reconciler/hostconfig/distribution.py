"""Distributions whose configuration must not be edited this way (design 6.1 and 6.3)."""

from __future__ import annotations

import re

from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused

UNSUPPORTED = {
    "bottlerocket": "Bottlerocket renders its configuration from settings",
    "talos": "Talos takes runtimes as system extensions only",
}
GENERATED = ("/var/lib/rancher/", "/etc/k0s/", "/run/k0s/", "/var/snap/microk8s/", "/etc/cri/")
"""Files that their distribution writes anew: an edit would not last."""


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
