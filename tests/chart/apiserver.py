"""etcd and a kube-apiserver on the loopback: what validates objects, without a node or root."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from tests.cluster import binaries, paths
from tests.cluster.command import CommandFailed, run, wait_until

_STARTS_WITHIN = 60.0
_ENDS_WITHIN = 10.0


class ApiServer:
    """Its files lie below `folder`; `config` is the administrator's kubeconfig, `etcd` where its store listens.

    `controllers`: with kube-controller-manager, for what the garbage collector and the namespace controller do.
    """

    def __init__(self, folder: Path, *options: str, controllers: bool = False) -> None:
        """`options` of kube-apiserver's command line beside its own."""
        self.config = folder / "kubeconfig"
        self.authority = folder / "certificates/apiserver.crt"
        self.url = ""
        self.etcd = ""
        self._controllers = controllers
        self._folder = folder
        self._options = options
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> ApiServer:
        binaries.kubernetes("kube-apiserver", "kubectl")
        binaries.etcd()
        if self._controllers:
            binaries.kubernetes("kube-controller-manager")
        etcd_port, peer_port, port = _free_ports(3)
        self.url, self.etcd = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{etcd_port}"
        self._write(port)
        self._start(
            "etcd",
            [
                paths.binaries("etcd", paths.ETCD) / "etcd",
                f"--data-dir={self._folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
                f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
            ],
        )
        self._start(
            "apiserver",
            [
                paths.binaries("kubernetes", paths.KUBERNETES) / "kube-apiserver",
                f"--etcd-servers=http://127.0.0.1:{etcd_port}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={self._folder / 'certificates'}",
                f"--service-account-key-file={self._folder / 'sa.key'}",
                f"--service-account-signing-key-file={self._folder / 'sa.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--token-auth-file={self._folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--allow-privileged=true",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--endpoint-reconciler-type=none",
                *self._options,
            ],
        )
        try:
            wait_until(self._ready, _STARTS_WITHIN, what="kube-apiserver ready")
        except TimeoutError as error:
            self.__exit__()
            raise TimeoutError(f"{error}; see the logs in {self._folder}") from error
        if self._controllers:
            self._start_controllers()
        return self

    def _start_controllers(self) -> None:
        self._start(
            "controllers",
            [
                paths.binaries("kubernetes", paths.KUBERNETES) / "kube-controller-manager",
                f"--kubeconfig={self.config}",
                f"--service-account-private-key-file={self._folder / 'sa.key'}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
            ],
        )

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubectl(self, *argv: str, stdin: str | None = None, check: bool = True) -> str:
        """Raises CommandFailed with what the server said."""
        return run([paths.KUBECTL, f"--kubeconfig={self.config}", *argv], stdin=stdin, check=check)

    def names(self, *kinds: str) -> set[str]:
        """`kind/name` of what there is of these kinds, in all namespaces."""
        return set(self.kubectl("get", ",".join(kinds), "--all-namespaces", "-oname").split())

    def _start(self, name: str, argv: list[str | Path]) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _ready(self) -> bool:
        try:
            return self.kubectl("get", "--raw=/readyz") == "ok" and self.names("namespaces") >= {
                "namespace/kube-system"
            }
        except CommandFailed:
            return False

    def _write(self, port: int) -> None:
        run(["openssl", "genrsa", "-out", str(self._folder / "sa.key"), "2048"])
        (self._folder / "tokens.csv").write_text('admin-token,admin,admin,"system:masters"\n')
        cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "admin-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        self.config.write_text(json.dumps(config))


def _free_ports(count: int) -> list[int]:
    """Free when asked: all are held until the last one is known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
