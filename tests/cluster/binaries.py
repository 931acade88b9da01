"""Kubernetes, etcd, crictl and helm, built from source once and kept by version."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster import paths
from tests.cluster.command import CommandFailed, run

_VERSION_FLAGS = (
    f"-X k8s.io/component-base/version.gitVersion={paths.KUBERNETES} "
    "-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
)
_KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")


def ensure() -> None:
    """Build what is missing: 15 minutes on two cores the first time, nothing later."""
    kubernetes(*_KUBERNETES)
    etcd()
    _build("crictl", paths.CRICTL, "crictl", "sigs.k8s.io/cri-tools/cmd/crictl")
    helm()


def kubernetes(*names: str) -> None:
    """These programs of Kubernetes, `kubectl` or `kube-apiserver` for instance."""
    for name in names:
        _build("kubernetes", paths.KUBERNETES, name, f"k8s.io/kubernetes/cmd/{name}", flags=_VERSION_FLAGS)


def etcd() -> None:
    _build("etcd", paths.ETCD, "etcd", "go.etcd.io/etcd/server/v3")


def helm() -> None:
    """4 minutes on two cores the first time."""
    _build("helm", paths.HELM, "helm", "helm.sh/helm/v4/cmd/helm")


def _build(module: str, version: str, name: str, package: str, *, flags: str = "") -> None:
    target = paths.binaries(module, version) / name
    if target.exists():
        return
    if shutil.which("go") is None:
        raise CommandFailed(
            f"{name} {version} is not in {paths.CACHE} and cannot be built: no `go` on PATH (1.24 or later)"
        )
    print(f"building {name} {version} …", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    argv: list[str | Path] = ["go", "build", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", unfinished, package]
    run(argv, cwd=paths.HERE / module, timeout=3600)
    unfinished.rename(target)
