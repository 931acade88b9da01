"""Which resources the project speaks of, where they live, and what they decode to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from reconciler.api import meta, names
from reconciler.api.noderuntime import NodeRuntime, salvage

T = TypeVar("T")


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class Event(msgspec.Struct, frozen=True, kw_only=True):
    metadata: meta.ObjectMeta = meta.ObjectMeta()


@dataclass(frozen=True)
class Resource(Generic[T]):
    """One resource of the API; `type` is the struct that its objects decode to."""

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str
    type: type[T]
    salvage: Callable[[bytes, str], T] | None = None
    """What is made of an object that does not fit `type`, and of the decoder's error; None: it cannot be used."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def decode(self, raw: bytes | msgspec.Raw) -> T:
        """Raises msgspec.MsgspecError on what is not such an object and cannot be salvaged."""
        try:
            return msgspec.json.decode(raw, type=self.type)
        except msgspec.ValidationError as error:
            if self.salvage is None:
                raise
            return self.salvage(bytes(raw), str(error))

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection (all namespaces when none is given), or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"


NODES: Resource[meta.Node] = Resource("", "v1", "nodes", False, "Node", meta.Node)
PODS: Resource[meta.Pod] = Resource("", "v1", "pods", True, "Pod", meta.Pod)
CONFIGMAPS: Resource[meta.ConfigMap] = Resource("", "v1", "configmaps", True, "ConfigMap", meta.ConfigMap)
NODERUNTIMES: Resource[NodeRuntime] = Resource(
    names.GROUP, names.VERSION, names.PLURAL, False, names.KIND, NodeRuntime, salvage
)
CONTROLLERREVISIONS: Resource[meta.ControllerRevision] = Resource(
    "apps", "v1", "controllerrevisions", True, "ControllerRevision", meta.ControllerRevision
)
RUNTIMECLASSES: Resource[meta.RuntimeClass] = Resource(
    "node.k8s.io", "v1", "runtimeclasses", False, "RuntimeClass", meta.RuntimeClass
)
DAEMONSETS: Resource[meta.DaemonSet] = Resource("apps", "v1", "daemonsets", True, "DaemonSet", meta.DaemonSet)
DEPLOYMENTS: Resource[meta.Deployment] = Resource("apps", "v1", "deployments", True, "Deployment", meta.Deployment)
LEASES: Resource[Lease] = Resource("coordination.k8s.io", "v1", "leases", True, "Lease", Lease)
EVENTS: Resource[Event] = Resource("events.k8s.io", "v1", "events", True, "Event", Event)

AnyResource = Resource[Any]
