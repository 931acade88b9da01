"""The hash that names a revision is the same in every release: another one would install every node again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reconciler.api.noderuntime import NodeRuntimeSpec, revision_data, revision_hash

KATA: dict[str, Any] = {
    "name": "kata-qemu",
    "runtimeType": "io.containerd.kata-qemu.v2",
    "runtimePath": "/opt/kata/bin/containerd-shim-kata-v2",
    "snapshotter": "nydus",
    "podAnnotations": ["io.katacontainers.*"],
    "privilegedWithoutHostDevices": True,
    "options": {"ConfigPath": "/opt/kata/c.toml"},
    "extra": {"base_runtime_spec": "/etc/spec.json"},
    "runtimeClass": {"name": "kata-qemu", "overhead": {"podFixed": {"cpu": "250m"}}},
}
INSTALL: dict[str, Any] = {
    "image": "registry.example.com/kata:1",
    "command": ["/install.sh"],
    "timeoutSeconds": 300,
    "env": [{"name": "A", "value": "b"}],
    "securityContext": {"privileged": True},
    "hostPID": True,
    "volumes": [{"name": "opt", "hostPath": {"path": "/opt"}}],
    "volumeMounts": [{"name": "opt", "mountPath": "/host-opt"}],
    "completion": {"nodeLabel": {"key": "k", "value": "v"}},
}
NYDUS: dict[str, Any] = {
    "name": "nydus",
    "address": "/run/containerd-nydus/containerd-nydus-grpc.sock",
}
WHOLE: dict[str, Any] = {
    "handlers": [KATA],
    "snapshotters": [NYDUS],
    "phases": {
        "install": INSTALL,
        "uninstall": {"image": "registry.example.com/kata:1", "command": ["/uninstall.sh"]},
    },
    "imagePullSecrets": [{"name": "registry"}],
}


@pytest.mark.parametrize(
    ("spec", "name"),
    [(WHOLE, "be4cc95ef8"), ({"phases": {"install": {"image": "a"}}}, "f2d8cda7d4")],
    ids=["whole", "small"],
)
def test_it_is_that_of_0_1_0(spec: dict[str, Any], name: str) -> None:
    assert revision_hash(revision_data(msgspec.convert(spec, NodeRuntimeSpec))) == name
