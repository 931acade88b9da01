"""NodeRuntimes that the scenarios ask for, and the pods that use them."""

from __future__ import annotations

from typing import Any

from tests.cluster import images
from tests.cluster.api import Object

NAME = "demo"
HANDLER = "demo"
FOLDER = "/opt/demo"
SHIM = f"{FOLDER}/bin/containerd-shim-demo-v2"

INSTALL = (
    "mkdir -p /host-opt/demo/bin && cp -f /payload/* /host-opt/demo/bin/"
    f" && ln -sf {SHIM} /host-bin/containerd-shim-demo-v2"
)
"""containerd 1.6.20 reads `runtime_path` and starts the shim from PATH nevertheless: hence the link.

`-f`: the shim of a running pod cannot be written over, only replaced.
"""
UNINSTALL = "rm -rf /host-opt/demo /host-bin/containerd-shim-demo-v2"
RESTART = "nsenter -t 1 -m -p -u -i -n -- systemctl restart containerd"


def phase(script: str, *, image: str = images.PAYLOAD, grace: int = 5, **more: Any) -> Object:
    """A phase that runs `script` with the node's /opt at /host-opt; root, as vendors' payloads are."""
    return {
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-ec", script],
        "terminationGracePeriodSeconds": grace,
        "securityContext": {"privileged": True},
        "hostPID": True,
        "volumes": [
            {"name": "opt", "hostPath": {"path": "/opt"}},
            {"name": "bin", "hostPath": {"path": "/usr/local/bin"}},
        ],
        "volumeMounts": [{"name": "opt", "mountPath": "/host-opt"}, {"name": "bin", "mountPath": "/host-bin"}],
        "timeoutSeconds": 120,
        **more,
    }


def handler(name: str = HANDLER) -> Object:
    """The payload's runtime as a handler with a RuntimeClass of the same name."""
    return {
        "name": name,
        "runtimeType": "io.containerd.demo.v2",
        "runtimeClass": {"name": name},
    }


def full(*, image: str = images.PAYLOAD, **spec: Any) -> Object:
    """The payload with its handler, on all nodes at once."""
    phases = {"install": phase(INSTALL, image=image), "uninstall": phase(UNINSTALL, image=image)}
    return runtime(phases=phases, handlers=[handler()], bake=2, **spec)


def four_phases(*, image: str = images.PAYLOAD, **spec: Any) -> Object:
    """As full, with a phase before and one after."""
    phases = {
        "preInstall": phase("true", image=image),
        "install": phase(INSTALL, image=image),
        "uninstall": phase(UNINSTALL, image=image),
        "postUninstall": phase("true", image=image),
    }
    return runtime(phases=phases, handlers=[handler()], bake=2, **spec)


def no_op(**spec: Any) -> Object:
    """Two phases that do nothing, no handler, no bake: the floor."""
    return runtime(phases={"install": phase("true"), "uninstall": phase("true")}, handlers=[], bake=0, **spec)


def runtime(*, phases: Object, handlers: list[Object], bake: int, name: str = NAME, **spec: Any) -> Object:
    """A NodeRuntime; by default on all nodes at once."""
    rollout = {"maxUnavailable": "100%", "canary": {"count": 0}, "bakeSeconds": bake, **spec.pop("rollout", {})}
    return {
        "apiVersion": "runtime-reconciler.io/v1alpha1",
        "kind": "NodeRuntime",
        "metadata": {"name": name},
        "spec": {"nodeSelector": {}, "phases": phases, "handlers": handlers, "rollout": rollout, **spec},
    }


def user_pod(name: str, node: str, *, runtime_class: str | None = HANDLER, grace: int = 1) -> Object:
    """A pod that a user of the runtime runs on `node`."""
    loop = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
    spec: Object = {
        "nodeName": node,
        "terminationGracePeriodSeconds": grace,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {"name": "c", "image": images.BUSYBOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", loop]}
        ],
    }
    if runtime_class is not None:
        spec["runtimeClassName"] = runtime_class
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
