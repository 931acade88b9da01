"""The few fields of Kubernetes' own objects that we use, as small structs that decode from raw bytes.

A field that is not used is not named: decoding a Node without `status.images` and `managedFields`
is what keeps the watch path cheap (design section 10).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class _Object(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base: camelCase on the wire, unknown fields ignored."""


class ObjectMeta(_Object, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class Requirement(_Object, frozen=True):
    """One entry of `matchExpressions`; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    """Key of a label."""
    operator: str
    """`In`, `NotIn`, `Exists` or `DoesNotExist`."""
    values: tuple[str, ...] = ()
    """For `In` and `NotIn`."""


class LabelSelector(_Object, frozen=True):
    """As everywhere in Kubernetes: all of it must match."""

    match_labels: dict[str, str] = {}
    """Labels with their values."""
    match_expressions: tuple[Requirement, ...] = ()
    """Requirements of labels."""


class Condition(_Object, frozen=True):
    """As everywhere in Kubernetes."""

    type: str
    """What it is about."""
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str = ""
    """Why, in one word for programs."""
    message: str = ""
    """Why, in words for people."""
    last_transition_time: datetime | None = None
    """When `status` changed last."""
    observed_generation: int = 0
    """Generation of the spec that it speaks of."""


class ConfigMap(_Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class NodeTaint(_Object, frozen=True):
    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(_Object, frozen=True):
    taints: tuple[NodeTaint, ...] = ()


class NodeInfo(_Object, frozen=True):
    machine_id: str = msgspec.field(default="", name="machineID")
    boot_id: str = msgspec.field(default="", name="bootID")
    container_runtime_version: str = ""
    operating_system: str = ""


class NodeStatus(_Object, frozen=True):
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(_Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class StateRunning(_Object, frozen=True):
    started_at: datetime | None = None


class StateWaiting(_Object, frozen=True):
    reason: str = ""
    message: str = ""


class StateTerminated(_Object, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None


class ContainerState(_Object, frozen=True):
    running: StateRunning | None = None
    waiting: StateWaiting | None = None
    terminated: StateTerminated | None = None


class ContainerStatus(_Object, frozen=True):
    name: str = ""
    ready: bool = False
    state: ContainerState = ContainerState()
    container_id: str = msgspec.field(default="", name="containerID")


class PodSpec(_Object, frozen=True):
    node_name: str = ""
    runtime_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    host_network: bool = False


class PodStatus(_Object, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class RuntimeClass(_Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    overhead: dict[str, Any] | None = None
    scheduling: dict[str, Any] | None = None


class ControllerRevision(_Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: msgspec.Raw = msgspec.Raw(b"null")
    revision: int = 0


class HostPath(_Object, frozen=True):
    path: str = ""


class Volume(_Object, frozen=True):
    name: str = ""
    host_path: HostPath | None = None


class VolumeMount(_Object, frozen=True):
    name: str = ""
    read_only: bool = False


class SecurityContext(_Object, frozen=True):
    privileged: bool | None = None


class Container(_Object, frozen=True):
    security_context: SecurityContext | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()


class TemplateSpec(_Object, frozen=True):
    node_selector: dict[str, str] = {}
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()


class PodTemplate(_Object, frozen=True):
    spec: TemplateSpec = TemplateSpec()


class DaemonSetSpec(_Object, frozen=True):
    template: PodTemplate = PodTemplate()


class DaemonSet(_Object, frozen=True):
    """What of a DaemonSet tells whether it edits containerd's configuration."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class Deployment(_Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of type `kind`, or None."""
    return next((c for c in conditions if c.type == kind), None)
