"""etcd, API server, controller manager and scheduler as processes of this machine."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster import paths
from tests.cluster.command import Daemon, run, wait_until

AUDIT_LOG = paths.RUN / "audit.log"
_PKI = paths.RUN / "pki"
ETCD = "http://127.0.0.1:12379"
AUTHORITY = _PKI / "ca.crt"
NODE_NAMES = ("node0", "node1")
_TOKENS = {
    "admin": ("admin", "system:masters"),
    "observer": ("observer", "observers"),
    "kcm": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    **{name: (f"system:node:{name}", "system:nodes") for name in NODE_NAMES},
}
"""Token → user and group. The observer has a token of its own, so that the audit log tells it from the product."""

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["observer"]},
        {
            "level": "Request",
            "verbs": ["patch", "update"],
            "resources": [{"group": "", "resources": ["nodes", "nodes/status"]}],
        },
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


def daemons() -> list[Daemon]:
    """In the order in which they start."""
    return [Daemon(name, paths.RUN) for name in ("etcd", "apiserver", "kcm", "scheduler")]


def kubeconfig(token: str) -> Path:
    """A kubeconfig of the user that `token` stands for."""
    return paths.RUN / f"{token}.kubeconfig"


def start() -> None:
    """Bring all of it up; what runs already is left. Raises TimeoutError with the log of what does not come up."""
    paths.RUN.mkdir(parents=True, exist_ok=True)
    _bridge()
    _keys()
    _credentials()
    etcd, apiserver, kcm, scheduler = daemons()
    _start_etcd(etcd)
    _start_apiserver(apiserver)
    try:
        wait_until(ready, 60, what="kube-apiserver ready")
    except TimeoutError as error:
        raise TimeoutError(f"{error}\n{etcd.tail(5)}\n{apiserver.tail()}") from error
    binaries = paths.binaries("kubernetes", paths.KUBERNETES)
    kcm.start(
        [
            binaries / "kube-controller-manager",
            f"--kubeconfig={kubeconfig('kcm')}",
            f"--service-account-private-key-file={_PKI / 'sa.key'}",
            f"--root-ca-file={_PKI / 'ca.crt'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
        ]
    )
    scheduler.start([binaries / "kube-scheduler", f"--kubeconfig={kubeconfig('scheduler')}", "--leader-elect=false"])


def stop() -> None:
    """End all of it and take the bridge away."""
    for daemon in reversed(daemons()):
        daemon.kill()
    run(["ip", "link", "del", paths.BRIDGE], check=False)


def ready() -> bool:
    """Whether the API server says that it is."""
    request = urllib.request.Request(f"{paths.API}/readyz", headers={"Authorization": "Bearer admin-token"})
    try:
        with urllib.request.urlopen(request, timeout=2, context=tls()) as answer:
            return bool(answer.read() == b"ok")
    except (urllib.error.URLError, OSError):
        return False


def tls() -> ssl.SSLContext:
    """Trust in the cluster's own authority only."""
    return ssl.create_default_context(cafile=str(AUTHORITY))


def _bridge() -> None:
    if not Path(f"/sys/class/net/{paths.BRIDGE}").exists():
        run(["ip", "link", "add", paths.BRIDGE, "type", "bridge"])
        run(["ip", "addr", "add", f"{paths.BRIDGE_ADDRESS}/24", "dev", paths.BRIDGE])
        run(["ip", "link", "set", paths.BRIDGE, "up"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _keys() -> None:
    if (_PKI / "api.crt").exists():
        return
    _PKI.mkdir(parents=True, exist_ok=True)

    def openssl(*words: str) -> None:
        run(["openssl", *words], cwd=_PKI)

    openssl("genrsa", "-out", "sa.key", "2048")
    openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    openssl(
        *[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "365",
            "-subj",
            "/CN=test-ca",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
        ]
    )
    openssl(
        *[
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=kube-apiserver",
            "-keyout",
            "api.key",
            "-out",
            "api.csr",
        ]
    )
    names = f"IP:{paths.BRIDGE_ADDRESS},IP:127.0.0.1,IP:{paths.SERVICE_ADDRESS},DNS:kubernetes.default.svc"
    (_PKI / "names").write_text(f"subjectAltName={names}\n")
    openssl(
        *[
            "x509",
            "-req",
            "-in",
            "api.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "365",
            "-out",
            "api.crt",
            "-extfile",
            "names",
        ]
    )


def _credentials() -> None:
    lines = [f'{token}-token,{user},{token},"{group}"' for token, (user, group) in _TOKENS.items()]
    (paths.RUN / "tokens.csv").write_text("\n".join(lines) + "\n")
    (paths.RUN / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))
    authority = base64.b64encode(AUTHORITY.read_bytes()).decode()
    for token in _TOKENS:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": paths.API, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"token": f"{token}-token"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        kubeconfig(token).write_text(json.dumps(config))


def _start_etcd(etcd: Daemon) -> None:
    etcd.start(
        [
            paths.binaries("etcd", paths.ETCD) / "etcd",
            f"--data-dir={paths.RUN / 'etcd-data'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            "--listen-peer-urls=http://127.0.0.1:12380",
        ]
    )


def _start_apiserver(apiserver: Daemon) -> None:
    apiserver.start(
        [
            paths.binaries("kubernetes", paths.KUBERNETES) / "kube-apiserver",
            f"--etcd-servers={ETCD}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={paths.BRIDGE_ADDRESS}",
            "--secure-port=6443",
            f"--tls-cert-file={_PKI / 'api.crt'}",
            f"--tls-private-key-file={_PKI / 'api.key'}",
            f"--service-account-key-file={_PKI / 'sa.pub'}",
            f"--service-account-signing-key-file={_PKI / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={paths.RUN / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-log-path={AUDIT_LOG}",
            "--audit-log-maxsize=2000",
            f"--audit-policy-file={paths.RUN / 'audit-policy.json'}",
        ]
    )
