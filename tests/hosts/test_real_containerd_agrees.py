"""What the engine predicts is what the installed containerd says (`config dump`), before and after our edit.

Needs a containerd 1.6 or 1.7: `CONTAINERD` names the binary, `/usr/bin/containerd` by default.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.noderuntime import Handler, RevisionData, Snapshotter
from reconciler.hostconfig import HostConfig, Verdict

CONTAINERD = os.environ.get("CONTAINERD", "/usr/bin/containerd")
CRI = "io.containerd.grpc.v1.cri"
DATA = RevisionData(
    handlers=(
        Handler(
            name="kata.qemu",
            runtime_type="io.containerd.kata-qemu.v2",
            runtime_path="/opt/kata/bin/containerd-shim-kata-v2",
            pod_annotations=("io.katacontainers.*", 'quote"d'),
            privileged_without_host_devices=True,
            options={"ConfigPath": "/opt/kata/qemu.toml"},
        ),
        Handler(name="crun", options={"BinaryName": "/usr/local/bin/crun"}),
    ),
    snapshotters=(Snapshotter(name="nydus", address="/run/nydus.sock"),),
)
SHAPES = {
    "empty": "",
    "bare plugins": "version = 2\n[plugins]\n"
    '  [plugins."io.containerd.grpc.v1.cri".cni]\n    bin_dir = "/usr/lib/cni"\n',
    "version 1": '[plugins.cri]\n  sandbox_image = "p:1"\n  [plugins.cri.containerd.runtimes.runc]\n'
    '    runtime_type = "io.containerd.runc.v2"\n    [plugins.cri.containerd.runtimes.runc.options]\n'
    "      SystemdCgroup = true\n",
    "dotted keys, no last line end": 'version = 2\nplugins."io.containerd.grpc.v1.cri".sandbox_image = "p:1"\n'
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"',
    "carriage returns": '[debug]\r\n  level = "info"\r\n',
}


def version() -> str:
    done = subprocess.run([CONTAINERD, "--version"], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.split()[2]


def dump(config: Path) -> dict[str, Any]:
    command = [CONTAINERD, "-c", str(config), "config", "dump"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=20)
    return tomllib.loads(done.stdout.decode())


@pytest.fixture(params=SHAPES, ids=str)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "etc/containerd/config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(SHAPES[request.param].encode())
    return path


async def test_prediction_and_reality_agree(config: Path, tmp_path: Path) -> None:
    host = HostConfig(tmp_path, "", version())
    before = dump(config)
    assert sorted(before["plugins"][CRI]["containerd"]["runtimes"]) == list(host.check().handlers)
    outcome = await host.apply("vendor", "uid-1", DATA)
    assert outcome.verdict is Verdict.CHANGED
    after = dump(config)
    runtimes = after["plugins"][CRI]["containerd"]["runtimes"]
    assert sorted(runtimes) == list(outcome.handlers)
    assert runtimes["kata.qemu"]["pod_annotations"] == ["io.katacontainers.*", 'quote"d']
    default = runtimes["runc"]["options"].get("SystemdCgroup", False)
    assert runtimes["crun"]["options"].get("SystemdCgroup", False) == default
    assert after["proxy_plugins"]["nydus"]["type"] == "snapshot"
    assert after["plugins"][CRI]["sandbox_image"] == before["plugins"][CRI]["sandbox_image"]


def test_removal_gives_the_same_bytes_and_the_same_dump(config: Path, tmp_path: Path) -> None:
    host, bytes_before, before = HostConfig(tmp_path, "", version()), config.read_bytes(), dump(config)

    async def come_and_go() -> None:
        await host.apply("vendor", "uid-1", DATA)
        await host.remove("vendor")

    asyncio.run(come_and_go())
    assert config.read_bytes() == bytes_before
    assert dump(config) == before
