"""`reconciler config` with a daemon: the one that owns the CRI socket is restarted, whatever its unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import reconciler.cri.client
import reconciler.systemd.client
from reconciler.cli import config
from reconciler.cri.api import Sandbox, Status, Version
from reconciler.hostconfig import HostConfig, Outcome, Verdict
from reconciler.hostconfig.discovery import Process
from tests.unit.systemd.units import RUNNING, Units

K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
SOCKET = "/run/k3s/containerd/containerd.sock"


def systemd(address: str) -> Units:
    """That of a host with k3s."""
    return Units({"k3s.service": replace(RUNNING, exec_start=("/usr/local/bin/k3s", "agent"))}, silent=True)


class Cri:
    def __init__(self, socket: str) -> None:
        self.socket = socket

    async def version(self, *, timeout: float) -> Version:
        return Version("containerd", "2.2.9")

    async def status(self, *, timeout: float) -> Status:
        return Status(True, True, handlers=("runc",), default_runtime="runc")

    async def sandboxes(self, *, timeout: float) -> list[Sandbox]:
        return []

    def close(self) -> None:
        return None


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path, text in ((SOCKET, ""), (K3S, f"version = 3\nimports = ['{K3S[:-5]}-v3.toml.d/*.toml']\n")):
        local = tmp_path / path.lstrip("/")
        local.parent.mkdir(parents=True)
        local.write_text(text)
    owner = Process(7, ("containerd", "-c", K3S), "/data/k3s", "k3s.service")

    async def version(self: object, binary: str) -> str:
        return "v2.2.9-k3s1"

    monkeypatch.setattr(reconciler.systemd.client, "DbusSystemd", systemd)
    monkeypatch.setattr(reconciler.cri.client, "GrpcCri", Cri)
    monkeypatch.setattr(config.LinuxProcesses, "owner", lambda self, socket: owner if socket == SOCKET else None)
    monkeypatch.setattr(config.LinuxProcesses, "version", version)
    return tmp_path


def engine(root: Path, release: str = "") -> config._Engine:
    return config._Engine(root, "", None, release, "/var/lib/runtime-reconciler", True)


async def nothing(host: HostConfig) -> Outcome:
    """What the engine was made with, in an answer."""
    return replace(Outcome(Verdict.OK), handlers=host.check().handlers, message=str(host.check().findings))


def test_its_own_file_is_the_one_that_is_looked_at(root: Path) -> None:
    (root / K3S.lstrip("/")).write_text("version = 9\n")
    outcome = engine(root).run(nothing)
    assert "`version = 9` is not known to containerd 2.2.9" in outcome.message


def test_a_systemd_that_does_not_answer_is_a_refusal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config.LinuxProcesses, "owner", lambda self, socket: None)
    outcome = engine(root).run(nothing)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, "Busy")
    assert outcome.message == "systemd cannot be asked: NoSuchUnit: containerd.service"
