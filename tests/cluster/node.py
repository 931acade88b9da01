"""A node: a root directory booted by systemd-nspawn, with a real systemd, containerd and kubelet."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import cgroups, paths
from tests.cluster.command import CommandFailed, Daemon, run, wait_until
from tests.cluster.controlplane import kubeconfig

CONTAINERD_CONFIG = """\
# containerd of a test node
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""

_UNITS = {
    "test-net": """\
[Unit]
DefaultDependencies=no
Before=containerd.service kubelet.service
After=local-fs.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip link set lo up; ip addr add {ip}/24 dev host0; ip link set host0 up; \
ip route add default via {bridge}; mount --make-rshared /; sysctl -w net.ipv4.ip_forward=1; \
for c in OUTPUT PREROUTING; do \
iptables -t nat -A $c -d {service} -p tcp --dport 443 -j DNAT --to {bridge}:6443; done'
[Install]
WantedBy=multi-user.target
""",
    "test-images": """\
[Unit]
After=containerd.service
Requires=containerd.service
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'test -e /var/lib/test-images.done && exit 0; \
for f in /var/lib/test-images/*.tar; do ctr -n k8s.io images import $f; done; touch /var/lib/test-images.done'
[Install]
WantedBy=multi-user.target
""",
    "kubelet": """\
[Unit]
After=containerd.service test-images.service
Wants=containerd.service
[Service]
ExecStart=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.json --kubeconfig=/etc/kubernetes/kubeconfig \
--hostname-override={name} --node-ip={ip} --v=2
Restart=always
RestartSec=3
KillMode=process
[Install]
WantedBy=multi-user.target
""",
}


class Node:
    """One node; `index` gives its name, address and pod range."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"node{index}"
        self.ip = f"10.213.0.{10 + index}"
        self.root = paths.NODES / self.name
        self._nspawn = Daemon(self.name, paths.RUN)

    @property
    def running(self) -> bool:
        return self._nspawn.pid() is not None

    def leader(self) -> int:
        """Process id, here, of the node's pid 1. Raises CommandFailed when the node is off."""
        parent = self._nspawn.pid()
        children, name = Path(f"/proc/{parent}/task/{parent}/children"), Path(f"/proc/{parent}/comm")
        begun = parent is not None and children.exists() and name.read_text().strip() == "systemd-nspawn"
        words = children.read_text().split() if begun else []
        if not words:
            raise CommandFailed(f"{self.name} is not running\n{self._nspawn.tail()}")
        return int(words[0])

    def run(self, *argv: str, timeout: float = 60.0, check: bool = True, stdin: str | None = None) -> str:
        """Output of a command inside the node."""
        return run(["nsenter", "-t", str(self.leader()), "-a", *argv], timeout=timeout, check=check, stdin=stdin)

    def sh(self, script: str, *, timeout: float = 60.0, check: bool = True) -> str:
        """Output of a shell script inside the node."""
        return self.run("/bin/sh", "-c", script, timeout=timeout, check=check)

    def crictl(self, *argv: str, timeout: float = 30.0, check: bool = True) -> str:
        return self.run(
            "crictl", "-t", "20s", "-r", "unix:///run/containerd/containerd.sock", *argv, timeout=timeout, check=check
        )

    def path(self, inside: str) -> Path:
        """A path inside the running node, mounts included (`/run`)."""
        return Path(f"/proc/{self.leader()}/root{inside}")

    def prepare(self, node_root: Path, images: Path) -> None:
        """A fresh root: a copy of `node_root` with our configuration. Does nothing when there is one."""
        if self.root.exists():
            return
        unfinished = self.root.with_name(self.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        paths.NODES.mkdir(parents=True, exist_ok=True)
        run(["cp", "-a", "--reflink=auto", node_root, unfinished], timeout=300)
        self._configure(unfinished, images)
        unfinished.rename(self.root)

    def start(self) -> None:
        """Power on."""
        if self.running:
            return
        nspawn = [
            *("systemd-nspawn", "-D", self.root, "--boot", "-M", f"rr-{self.name}", "--register=no", "--keep-unit"),
            *("--network-veth", f"--network-bridge={paths.BRIDGE}", "--capability=all", "--kill-signal=SIGRTMIN+4"),
            "--system-call-filter=@keyring @mount bpf perf_event_open @module",
            *("--bind=/sys/fs/cgroup", "--bind=/dev/kmsg"),
        ]
        self._nspawn.start(cgroups.inside(self.name, nspawn), env={"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes"})

    def power_off(self) -> None:
        """As pulling the plug: no shutdown, nothing is told to anybody."""
        if self.running:
            leader = self.leader()
            os.kill(leader, signal.SIGKILL)
            wait_until(lambda: not self.running, 20, what=f"{self.name} off", raises=False)
        self._nspawn.kill(signal.SIGKILL)
        run(["ip", "link", "del", f"vb-rr-{self.name}"], check=False)

    def destroy(self) -> None:
        """Off, and its disk gone."""
        self.power_off()
        for mount in sorted(_mounts_below(self.root), reverse=True):
            run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.root, ignore_errors=True)
        cgroups.remove(self.name)

    def _configure(self, root: Path, images: Path) -> None:
        def write(path: str, text: str) -> None:
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

        write("etc/hostname", self.name + "\n")
        write("etc/machine-id", uuid.uuid4().hex + "\n")
        write("etc/containerd/config.toml", CONTAINERD_CONFIG)
        write("etc/cni/net.d/10-test.conflist", json.dumps(self._cni()))
        write("etc/kubernetes/kubelet.json", json.dumps(self._kubelet()))
        write("etc/kubernetes/kubeconfig", kubeconfig(self.name).read_text())
        (root / "etc/kubernetes/manifests").mkdir()
        (root / "var/log/journal").mkdir(parents=True, exist_ok=True)
        shutil.copy2(paths.binaries("kubernetes", paths.KUBERNETES) / "kubelet", root / "usr/local/bin/kubelet")
        shutil.copy2(paths.binaries("crictl", paths.CRICTL) / "crictl", root / "usr/local/bin/crictl")
        shutil.copytree(images, root / "var/lib/test-images")
        wants = root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        for unit, text in _UNITS.items():
            values = {
                "ip": self.ip,
                "name": self.name,
                "bridge": paths.BRIDGE_ADDRESS,
                "service": paths.SERVICE_ADDRESS,
            }
            write(f"etc/systemd/system/{unit}.service", text.format(**values))
            (wants / f"{unit}.service").symlink_to(f"/etc/systemd/system/{unit}.service")

    def _cni(self) -> dict[str, object]:
        ranges = [[{"subnet": f"10.244.{self.index}.0/24"}]]
        ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": "test", "plugins": [bridge]}

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "nodeStatusUpdateFrequency": "4s",
            "nodeStatusReportFrequency": "20s",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "resolvConf": "/etc/resolv.conf",
            "staticPodPath": "/etc/kubernetes/manifests",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%"},
        }


def _mounts_below(root: Path) -> Sequence[str]:
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in points if point == str(root) or point.startswith(f"{root}/")]
