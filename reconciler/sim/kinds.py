"""The resources that the embedded API server offers, and how each departs from the general rules.

Rules are those of Kubernetes 1.34's strategies (`pkg/registry/*/strategy.go`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api import crd, names
from reconciler.sim import rules
from reconciler.sim.failures import Cause

Object = dict[str, Any]
"""A Kubernetes object as plain JSON values; one that is stored is never changed in place."""


@dataclass(frozen=True)
class Kind:
    """One resource. Two kinds are the same when group and plural are."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    status: bool = False
    """Has a status subresource: status is ignored on the main path, everything but status on the other."""
    status_metadata: bool = False
    """Labels and annotations may be changed through the status subresource (nodes, pods; not custom resources)."""
    generation: bool = False
    """`metadata.generation` goes up when something outside metadata and status changes."""
    graceful: bool = False
    """Deleted in two steps: marked with a grace period, removed by the kubelet."""
    unconditional: bool = True
    """May be replaced by an object that names no resourceVersion."""
    upsert: bool = False
    """A replacement of what is not there creates it."""
    fields: tuple[str, ...] = ()
    """What a field selector may name beside `metadata.name` and `metadata.namespace`."""
    own_fields: bool = False
    """Fields are converted by the kind itself, which words the refusal of one in another way."""
    omitted: tuple[str, ...] = ()
    """Top-level maps that are left out when they are empty."""
    rules: Callable[[Object, Object | None], Iterator[Cause]] | None = None
    """What the registry's strategy refuses, see `sim.rules`."""
    unknown: Callable[[Object], list[str]] | None = None
    """Paths of fields that a built-in kind does not know."""
    schema: dict[str, Any] | None = None
    """Structural schema of a custom resource: what it does not know is pruned, what does not fit it is refused."""

    @property
    def built_in(self) -> bool:
        return self.schema is None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __hash__(self) -> int:
        return hash((self.group, self.plural))


KINDS = (
    Kind("", "v1", "namespaces", "Namespace", namespaced=False),
    Kind(
        "",
        "v1",
        "nodes",
        "Node",
        namespaced=False,
        status=True,
        status_metadata=True,
        fields=("spec.unschedulable",),
        own_fields=True,
        rules=rules.node,
    ),
    Kind(
        "",
        "v1",
        "pods",
        "Pod",
        namespaced=True,
        status=True,
        status_metadata=True,
        generation=True,
        graceful=True,
        fields=("spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase"),
        own_fields=True,
        rules=rules.pod,
        unknown=rules.unknown_in_pod,
    ),
    Kind("", "v1", "configmaps", "ConfigMap", namespaced=True, omitted=("data",), rules=rules.config_map),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True),
    Kind("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, status=True, generation=True),
    Kind("apps", "v1", "deployments", "Deployment", namespaced=True, status=True, generation=True),
    Kind("apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True, rules=rules.controller_revision),
    Kind(
        "coordination.k8s.io",
        "v1",
        "leases",
        "Lease",
        namespaced=True,
        unconditional=False,
        upsert=True,
        rules=rules.lease,
    ),
    Kind("events.k8s.io", "v1", "events", "Event", namespaced=True, upsert=True, rules=rules.event),
    Kind(
        "node.k8s.io",
        "v1",
        "runtimeclasses",
        "RuntimeClass",
        namespaced=False,
        unconditional=False,
        rules=rules.runtime_class,
    ),
    Kind(
        names.GROUP,
        names.VERSION,
        names.PLURAL,
        names.KIND,
        namespaced=False,
        status=True,
        generation=True,
        unconditional=False,
        own_fields=True,
        rules=rules.node_runtime,
        schema=crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
    ),
)

_BY_PATH: Mapping[tuple[str, str, str], Kind] = {(k.group, k.version, k.plural): k for k in KINDS}


GROUPS = frozenset(kind.group for kind in KINDS)


def find(group: str, version: str, plural: str) -> Kind | None:
    """The kind that is served there, None when there is none."""
    return _BY_PATH.get((group, version, plural))


def named(kind: str, group: str = "") -> Kind:
    """The kind of that name. Raises KeyError."""
    for known in KINDS:
        if known.kind == kind and known.group == group:
            return known
    raise KeyError(f"{group}/{kind}")


NAMESPACES = named("Namespace")
SERVICEACCOUNTS = named("ServiceAccount")
NODES = named("Node")
PODS = named("Pod")
LEASES = named("Lease", "coordination.k8s.io")
DAEMONSETS = named("DaemonSet", "apps")
NODERUNTIMES = named(names.KIND, names.GROUP)
RUNTIMECLASSES = named("RuntimeClass", "node.k8s.io")
CONTROLLERREVISIONS = named("ControllerRevision", "apps")
EVENTS = named("Event", "events.k8s.io")
