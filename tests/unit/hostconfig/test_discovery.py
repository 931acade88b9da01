"""Which containerd a host has, or why it is not one that we work with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hostconfig_trees import write

from reconciler.hostconfig import Refused
from reconciler.hostconfig.discovery import Daemon, Process, discover
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.processes import LinuxProcesses
from reconciler.systemd.api import Systemd, UnitState
from tests.unit.systemd.units import RUNNING, Units

SOCKET = "/run/containerd/containerd.sock"
UNIT = RUNNING
OWNER = Process(700, ("/usr/bin/containerd",), "/usr/bin/containerd", "containerd.service")
K3S_CONFIG = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
K3S = Process(
    801, ("containerd", "-c", K3S_CONFIG, "-a", "/run/k3s/containerd/containerd.sock"), "/data/bin/k3s", "k3s.service"
)


class Host:
    """The host's processes."""

    def __init__(self, owner: Process | None, version: str = "v2.2.9", *, replaced: bool = False) -> None:
        self._owner, self._version, self._replaced = owner, version, replaced
        self.asked: list[str] = []

    def owner(self, socket: str) -> Process | None:
        return self._owner

    def same_file(self, pid: int, binary: str) -> bool:
        return not self._replaced

    async def version(self, binary: str) -> str:
        self.asked.append(binary)
        return self._version


async def found(host: Host, units: dict[str, UnitState], root: Path) -> Daemon:
    systemd = cast(Systemd, Units({f"{name}.service": state for name, state in units.items()}))
    return await discover(systemd, host, HostRoot(root), socket=SOCKET, unit="containerd.service")


async def test_the_usual_one(tmp_path: Path) -> None:
    assert await found(Host(OWNER), dict(containerd=UNIT), tmp_path) == Daemon(
        unit="containerd.service",
        binary="/usr/bin/containerd",
        config="",
        version="v2.2.9",
        distribution="containerd",
        pid=700,
    )


@pytest.mark.parametrize(
    "argv", [("-c", "/etc/c.toml"), ("-c=/etc/c.toml",), ("--log-level", "info", "--config", "/etc/c.toml")]
)
async def test_the_units_own_config(argv: tuple[str, ...], tmp_path: Path) -> None:
    command = ("/opt/containerd", *argv)
    owner = replace(OWNER, argv=command, exe="/opt/containerd")
    daemon = await found(Host(owner), dict(containerd=replace(UNIT, exec_start=command)), tmp_path)
    assert (daemon.binary, daemon.config, daemon.notes) == ("/opt/containerd", "/etc/c.toml", ())


async def test_a_stopped_one_is_found_by_its_unit(tmp_path: Path) -> None:
    daemon = await found(Host(None), dict(containerd=replace(UNIT, active_state="inactive")), tmp_path)
    assert (daemon.unit, daemon.pid) == ("containerd.service", None)


async def test_a_child_of_k3s(tmp_path: Path) -> None:
    host = Host(K3S, "v2.2.5-k3s1.34")
    daemon = await found(host, dict(k3s=replace(UNIT, exec_start=("/usr/local/bin/k3s", "server"))), tmp_path)
    assert (daemon.unit, daemon.binary, daemon.config) == ("k3s.service", "/data/bin/k3s", K3S_CONFIG)
    assert (daemon.distribution, host.asked) == ("k3s", ["/data/bin/k3s"])
    assert daemon.notes == ("k3s.service runs kubelet too: it restarts with containerd",)


async def test_microk8s_starts_containerd_by_a_script(tmp_path: Path) -> None:
    unit = "snap.microk8s.daemon-containerd.service"
    config = "/var/snap/microk8s/current/args/containerd.toml"
    argv = ("/snap/microk8s/77/bin/containerd", "--config", config)
    host = Host(Process(9, argv, "/snap/microk8s/77/bin/containerd", unit), "v1.6.28")
    units = {"snap.microk8s.daemon-containerd": replace(UNIT, exec_start=("/usr/bin/snap", "run", "x"))}
    daemon = await found(host, units, tmp_path)
    assert (daemon.binary, daemon.config) == ("/snap/microk8s/77/bin/containerd", config)
    assert (daemon.distribution, daemon.notes) == ("microk8s", ())


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("gke", {"/etc/os-release": b"NAME=x\nID=cos\n"}),
        ("eks", {"/etc/eks/x": b""}),
        ("aks", {"/etc/kubernetes/azure.json": b""}),
        ("kind", {"/kind/product_name": b""}),
    ],
)
async def test_clouds_are_named(name: str, files: dict[str, bytes], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert (await found(Host(OWNER), dict(containerd=UNIT), tmp_path)).distribution == name


async def test_what_a_restart_would_bring_besides_is_said(tmp_path: Path) -> None:
    units = dict(
        containerd=replace(UNIT, required_by=("docker.service",), exec_start=("/usr/bin/containerd", "-c", "/n"))
    )
    daemon = await found(Host(OWNER, "1.7.34", replaced=True), units, tmp_path)
    assert daemon.notes == (
        "/usr/bin/containerd was replaced since containerd started: the next restart starts 1.7.34",
        "containerd runs with --config (default), containerd.service has /n",
        "docker.service restarts with containerd.service",
    )


@pytest.mark.parametrize(
    ("owner", "units", "version", "reason"),
    [
        (replace(OWNER, argv=("/usr/bin/crio",), exe="/usr/bin/crio"), {"containerd": UNIT}, "", "is not containerd"),
        (replace(OWNER, unit=""), {}, "", "belongs to no systemd unit"),
        (None, {}, "", "name the one of containerd with --unit"),
        (None, {"k3s": UNIT}, "", "start it first"),
        (replace(K3S, unit="k0sworker.service"), {"k0sworker": UNIT}, "", "restarts containerd by itself"),
        (OWNER, {}, "", "only a containerd run by systemd is supported"),
        (OWNER, {"containerd": replace(UNIT, required_by=("kubelet.service",))}, "v2.2.9", "would restart with it"),
        (OWNER, {"containerd": UNIT}, "v2.9.0", "containerd 2.9.0 is not supported"),
        (OWNER, {"containerd": UNIT}, "v1.5.9", "containerd 1.5.9 is not supported"),
    ],
)
async def test_a_refusal_says_why(
    owner: Process | None, units: dict[str, UnitState], version: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=reason):
        await found(Host(owner, version), units, tmp_path)


@pytest.mark.parametrize("system", ["bottlerocket", "talos"])
async def test_hosts_that_render_their_files_are_refused(system: str, tmp_path: Path) -> None:
    write(tmp_path, {"/usr/lib/os-release": f'ID="{system}"\n'.encode()})
    with pytest.raises(Refused):
        await found(Host(OWNER), dict(containerd=UNIT), tmp_path)


def test_the_owner_is_found_by_the_inode_of_its_socket(tmp_path: Path) -> None:
    head = b"Num RefCount Protocol Flags Type St Inode Path\n"
    write(
        tmp_path,
        {
            "/1/net/unix": head
            + b"00: 00000003 00000000 00000000 0001 03 41 /run/containerd/containerd.sock\n"
            + b"00: 00000002 00000000 00010000 0001 01 42 /run/containerd/containerd.sock\n"
            + b"00: 00000002 00000000 00010000 0001 01 43 /run/other.sock\n",
            "/1/cgroup": b"0::/init.scope\n",
            "/700/cmdline": b"/usr/bin/containerd\0--config\0/etc/c.toml\0",
            "/700/cgroup": b"0::/../../system.slice/containerd.service\n",
            "/800/cgroup": b"",
        },
    )
    for pid, inode in (("700", "42"), ("800", "41"), ("1", "43")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd/7").symlink_to(f"socket:[{inode}]")
    (tmp_path / "700/exe").symlink_to("/usr/bin/containerd (deleted)")
    processes = LinuxProcesses(HostRoot(tmp_path / "host"), tmp_path)
    assert processes.owner(SOCKET) == Process(
        700,
        ("/usr/bin/containerd", "--config", "/etc/c.toml"),
        "/usr/bin/containerd (deleted)",
        "containerd.service",
    )
    assert processes.owner("/run/nobody.sock") is None
    assert not processes.same_file(700, "/usr/bin/containerd")


async def test_a_binary_is_asked_as_containerd_and_its_silence_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"/multi": b'#!/bin/sh\necho "containerd github.com/x v2.0.1-k3s2 abc"\n', "/mute": b"#!/bin/sh\n"})
    for name in ("multi", "mute"):
        (tmp_path / name).chmod(0o755)
    processes = LinuxProcesses(HostRoot(Path("/")))
    assert await processes.version(f"{tmp_path}/multi") == "v2.0.1-k3s2"
    with pytest.raises(Refused, match="no version in its answer"):
        await processes.version(f"{tmp_path}/mute")
    with pytest.raises(Refused, match="No such file"):
        await processes.version(f"{tmp_path}/gone")
