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


def refuse_unsupported(host: HostRoot, config_path: str) -> None:
    """Raises Refused(UnsupportedDistribution)."""
    why = UNSUPPORTED.get(_os_id(host))
    if why is not None:
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, why)
    if config_path.startswith(GENERATED):
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, f"{config_path} is generated; edits would not last")


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
