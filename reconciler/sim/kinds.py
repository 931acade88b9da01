"""The resources that the embedded API server offers, and how each departs from the general rules.

Rules are those of Kubernetes 1.34's strategies (`pkg/registry/*/strategy.go`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api import crd, names, quantity
from reconciler.sim.failures import bad_request, invalid

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
    immutable: tuple[str, ...] = ()
    """Top-level fields that may not change once they are there."""
    validate: Callable[[Object], None] | None = None
    """Raises ApiFailure 422 on an object that the registry's strategy refuses."""
    schema: dict[str, Any] | None = None
    """Structural schema of a custom resource: what it does not know is pruned, what does not fit it is refused."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __hash__(self) -> int:
        return hash((self.group, self.plural))


def _valid_node_runtime(obj: Object) -> None:
    name = obj["metadata"]["name"]
    if len(name) > names.RUNTIME_NAME_MAX:
        raise invalid(f"{names.KIND} {name!r}: name is longer than {names.RUNTIME_NAME_MAX} characters")


def _valid_pod(obj: Object) -> None:
    """The few rules of `pkg/apis/core/validation` that a phase of a NodeRuntime can break."""
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for place, container in enumerate(spec.get("containers") or ()):
        path = f"spec.containers[{place}]"
        if not container.get("image"):
            raise invalid(f'Pod "{name}" is invalid: {path}.image: Required value')
        policy = container.get("imagePullPolicy") or "IfNotPresent"
        if policy not in ("Always", "IfNotPresent", "Never"):
            why = f'Unsupported value: "{policy}": supported values: "Always", "IfNotPresent", "Never"'
            raise invalid(f'Pod "{name}" is invalid: {path}.imagePullPolicy: {why}')
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                why = f'Not found: "{mount.get("name")}"'
                raise invalid(f'Pod "{name}" is invalid: {path}.volumeMounts[{number}].name: {why}')


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""RFC 1123, as `k8s.io/apimachinery/pkg/util/validation`."""


def _valid_runtime_class(obj: Object) -> None:
    """`pkg/apis/node/validation`; quantities are the decoder's."""
    name, handler = obj["metadata"]["name"], obj.get("handler") or ""
    for resource, amount in ((obj.get("overhead") or {}).get("podFixed") or {}).items():
        try:
            quantity.value(amount)
        except ValueError:
            why = f"overhead.podFixed.{resource}: quantities must match the regular expression"
            raise bad_request(f'RuntimeClass in version "v1" cannot be handled as a RuntimeClass: {why}') from None
    if _SUBDOMAIN.fullmatch(name) is None:
        why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        raise invalid(f'RuntimeClass.node.k8s.io "{name}" is invalid: metadata.name: Invalid value: "{name}": {why}')
    if _LABEL.fullmatch(handler) is None:
        why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
        raise invalid(f'RuntimeClass.node.k8s.io "{name}" is invalid: handler: Invalid value: "{handler}": {why}')


def _valid_config_map(obj: Object) -> None:
    """The decoder's rule: `data` is a map of strings."""
    for key, value in (obj.get("data") or {}).items():
        if not isinstance(value, str):
            raise bad_request(f'ConfigMap in version "v1" cannot be handled: data.{key}: expected a string')


KINDS = (
    Kind("", "v1", "namespaces", "Namespace", namespaced=False),
    Kind("", "v1", "nodes", "Node", namespaced=False, status=True, status_metadata=True),
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
        immutable=("spec",),
        validate=_valid_pod,
    ),
    Kind("", "v1", "configmaps", "ConfigMap", namespaced=True, validate=_valid_config_map),
    Kind("", "v1", "events", "Event", namespaced=True),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True),
    Kind("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, status=True, generation=True),
    Kind("apps", "v1", "deployments", "Deployment", namespaced=True, status=True, generation=True),
    Kind("apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True, immutable=("data",)),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True),
    Kind("events.k8s.io", "v1", "events", "Event", namespaced=True),
    Kind(
        "node.k8s.io",
        "v1",
        "runtimeclasses",
        "RuntimeClass",
        namespaced=False,
        immutable=("handler",),
        validate=_valid_runtime_class,
    ),
    Kind(
        names.GROUP,
        names.VERSION,
        names.PLURAL,
        names.KIND,
        namespaced=False,
        status=True,
        generation=True,
        validate=_valid_node_runtime,
        schema=crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
    ),
)

_BY_PATH: Mapping[tuple[str, str, str], Kind] = {(k.group, k.version, k.plural): k for k in KINDS}


def find(group: str, version: str, plural: str) -> Kind | None:
    """The kind that is served there, None when there is none."""
    return _BY_PATH.get((group, version, plural))


def named(kind: str, group: str = "") -> Kind:
    """The kind of that name. Raises KeyError."""
    for known in KINDS:
        if known.kind == kind and known.group == group:
            return known
    raise KeyError(f"{group}/{kind}")


NODES = named("Node")
PODS = named("Pod")
LEASES = named("Lease", "coordination.k8s.io")
DAEMONSETS = named("DaemonSet", "apps")
NODERUNTIMES = named(names.KIND, names.GROUP)
RUNTIMECLASSES = named("RuntimeClass", "node.k8s.io")
CONTROLLERREVISIONS = named("ControllerRevision", "apps")
EVENTS = named("Event", "events.k8s.io")
