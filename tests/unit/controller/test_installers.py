"""Another installer is known by what it may do to a host, not by its name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.api.meta import DaemonSet, Node, ObjectMeta
from reconciler.controller.installers import config_mount, message, on_nodes


def daemonset(path: str, *, privileged: bool = True, **more: Any) -> DaemonSet:
    container = {
        "securityContext": {"privileged": privileged},
        "volumeMounts": [{"name": "v", "mountPath": "/x", "readOnly": more.pop("readOnly", False)}],
    }
    spec = {more.pop("kind", "containers"): [container], "volumes": [{"name": "v", "hostPath": {"path": path}}], **more}
    return msgspec.convert({"metadata": {"name": "d"}, "spec": {"template": {"spec": spec}}}, DaemonSet)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/etc/containerd", "/etc/containerd"),
        ("/etc/containerd/", "/etc/containerd"),
        ("/etc/containerd/config.toml", "/etc/containerd/config.toml"),
        ("/etc/containerd/conf.d", "/etc/containerd/conf.d"),
        ("/var/lib/rancher/k3s/agent/etc/containerd", "/var/lib/rancher/k3s/agent/etc/containerd"),
        ("/", ""),
        ("/etc", ""),
        ("/etc/containerd-other", ""),
        ("/run/containerd", ""),
        ("/var/lib/containerd", ""),
    ],
)
def test_a_mount_of_the_configuration_is_what_counts(path: str, found: str) -> None:
    assert config_mount(daemonset(path)) == found


def test_an_init_container_counts_as_well() -> None:
    assert config_mount(daemonset("/etc/containerd", kind="initContainers", containers=[])) == "/etc/containerd"


def test_who_may_not_write_is_no_installer() -> None:
    assert config_mount(daemonset("/etc/containerd", privileged=False)) == ""
    assert config_mount(daemonset("/etc/containerd", readOnly=True)) == ""
    assert config_mount(DaemonSet()) == ""


def test_a_daemonset_on_other_nodes_is_nobodys_business() -> None:
    nodes = [Node(metadata=ObjectMeta(name="n", labels={"gpu": "yes"}))]
    assert on_nodes(daemonset("/etc/containerd"), nodes)
    assert on_nodes(daemonset("/etc/containerd", nodeSelector={"gpu": "yes"}), nodes)
    assert not on_nodes(daemonset("/etc/containerd", nodeSelector={"gpu": "no"}), nodes)
    assert not on_nodes(daemonset("/etc/containerd"), [])


def test_the_first_is_named_and_the_others_are_counted() -> None:
    text = message([("b/x", "/etc/containerd"), ("a/y", "/etc/containerd/conf.d"), ("c/z", "/etc/containerd")])
    assert text == (
        "DaemonSet a/y (and 2 more) is privileged and mounts /etc/containerd/conf.d of these nodes: two installers "
        "edit one configuration; remove it, or leave its nodes out of spec.nodeSelector"
    )
