"""DaemonSets of others that edit containerd's configuration on our nodes (design section 2). Pure.

Known by what they may do and not by their names: a privileged container with a writable mount of a directory, or a
file in it, that holds containerd's configuration on the host. Mounts of `/` or `/etc` say nothing: half of all node
agents have them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from reconciler.api.meta import DaemonSet, LabelSelector, Node
from reconciler.kube.selectors import matches

CONFIG_DIRS = (
    "/etc/containerd",
    "/etc/k0s/containerd.d",
    "/var/lib/rancher/k3s/agent/etc/containerd",
    "/var/lib/rancher/rke2/agent/etc/containerd",
    "/var/snap/microk8s/current/args",
)
"""Where containerd's configuration lies: its own default, and those of k0s, k3s, RKE2 and MicroK8s."""


def config_mount(daemonset: DaemonSet) -> str:
    """The path of the host by which `daemonset` can edit containerd's configuration; empty when it cannot."""
    spec = daemonset.spec.template.spec
    paths = {v.name: posixpath.normpath(v.host_path.path) for v in spec.volumes if v.host_path is not None}
    for container in (*spec.init_containers, *spec.containers):
        if container.security_context is None or not container.security_context.privileged:
            continue
        for mount in container.volume_mounts:
            path = paths.get(mount.name, "")
            if not mount.read_only and _inside(path):
                return path
    return ""


def on_nodes(daemonset: DaemonSet, nodes: Iterable[Node]) -> bool:
    """Whether its pods may be on one of `nodes`, as far as its nodeSelector tells."""
    wanted = LabelSelector(match_labels=daemonset.spec.template.spec.node_selector)
    return any(matches(wanted, node.metadata.labels) for node in nodes)


def message(found: list[tuple[str, str]]) -> str:
    """What to say of installers, as `namespace/name` and path; the first by name, and how many more."""
    (name, path), more = min(found), len(found) - 1
    others = f" (and {more} more)" if more else ""
    return (
        f"DaemonSet {name}{others} is privileged and mounts {path} of these nodes: two installers edit one "
        "configuration; remove it, or leave its nodes out of spec.nodeSelector"
    )


def _inside(path: str) -> bool:
    return any(path == top or path.startswith(top + "/") for top in CONFIG_DIRS)
