"""`NodeRuntime` (`runtime-reconciler.io/v1alpha1`): the types, their defaults, their revision.

The CRD's schema is made from these types (`reconciler.api.crd`), so a field is described here once.
Structs ignore unknown fields: the API server has pruned or refused them already.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from reconciler.api.meta import Condition, LabelSelector, ObjectMeta

IntOrPercent = int | Annotated[str, Meta(pattern=r"^[0-9]+%$")]
"""A count, or a percentage of the selected nodes."""

Name = Annotated[str, Meta(min_length=1, max_length=63)]


class WrittenBy(enum.StrEnum):
    """Who writes a handler into containerd's configuration."""

    AGENT = "Agent"
    PAYLOAD = "Payload"


class Strategy(enum.StrEnum):
    """How a node gets from one revision to the next."""

    IN_PLACE = "InPlace"
    REINSTALL = "Reinstall"


class WhenInUse(enum.StrEnum):
    """What an uninstall does on a node whose running pods still use a handler."""

    WAIT = "Wait"
    FORCE = "Force"


class _Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of everything inside a spec."""


class RuntimeClassSpec(_Spec, frozen=True):
    """A RuntimeClass that is made for a handler, bound to the nodes that have it."""

    name: Name
    overhead: dict[str, Any] | None = None


class Handler(_Spec, frozen=True):
    """One runtime handler that containerd's CRI must serve."""

    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    runtime_type: str = "io.containerd.runc.v2"
    runtime_path: str | None = None
    snapshotter: str | None = None
    pod_annotations: tuple[str, ...] = ()
    privileged_without_host_devices: bool | None = None
    options: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    written_by: WrittenBy = WrittenBy.AGENT
    runtime_class: RuntimeClassSpec | None = None


class Snapshotter(_Spec, frozen=True):
    """A proxy snapshotter plugin."""

    name: Name
    address: str
    layer_annotations: bool = False


class Taint(_Spec, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeLabel(_Spec, frozen=True):
    """A node label by which a payload says that it is done."""

    key: str
    value: str


class Completion(_Spec, frozen=True):
    """How a phase says that it is done: by the container's exit with 0 (the default), or by a node label."""

    node_label: NodeLabel | None = None


class Phase(_Spec, frozen=True):
    """One phase: the parts of a pod that are the vendor's."""

    image: str
    image_pull_policy: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    resources: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_network: bool = False
    service_account_name: str | None = None
    lifecycle: dict[str, Any] | None = None
    termination_grace_period_seconds: Annotated[int, Meta(ge=0)] = 30
    completion: Completion = Completion()
    timeout_seconds: Annotated[int, Meta(ge=1, le=86400)] = 600


class Phases(_Spec, frozen=True):
    pre_install: Phase | None = None
    install: Phase | None = None
    uninstall: Phase | None = None
    post_uninstall: Phase | None = None


class Canary(_Spec, frozen=True):
    count: Annotated[int, Meta(ge=0)] = 1
    pause: bool = False


class Rollout(_Spec, frozen=True):
    max_unavailable: IntOrPercent = 1
    canary: Canary = Canary()
    bake_seconds: Annotated[int, Meta(ge=0, le=86400)] = 30
    error_budget: IntOrPercent = 0
    order: tuple[LabelSelector, ...] = ()
    """Groups of nodes, one after the other; nodes in none of them come after all, control planes last."""


class Upgrade(_Spec, frozen=True):
    strategy: Strategy = Strategy.IN_PLACE


class Uninstall(_Spec, frozen=True):
    when_in_use: WhenInUse = WhenInUse.WAIT


class NodeRuntimeSpec(_Spec, frozen=True):
    node_selector: LabelSelector = LabelSelector()
    paused: bool = False
    handlers: tuple[Handler, ...] = ()
    snapshotters: tuple[Snapshotter, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    phases: Phases = Phases()
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    rollout: Rollout = Rollout()
    upgrade: Upgrade = Upgrade()
    uninstall: Uninstall = Uninstall()


class NodeCounts(_Spec, frozen=True):
    total: int = 0
    ready: int = 0
    updating: int = 0
    failed: int = 0
    stuck: int = 0


class Summary(_Spec, frozen=True):
    """What `kubectl get noderuntimes` shows and no path of a column can put together."""

    ready: str = ""
    """`7/9`: nodes that are ready, of how many."""
    stage: str = ""
    """Where most nodes at work are; where most nodes are when none is at work."""


class FailedNode(_Spec, frozen=True):
    node: str
    stage: str
    reason: str
    message: str = ""


class NodeRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Status is written whole; `inWork` holds the slots and is changed by compare-and-swap only."""

    observed_generation: int = 0
    revision: str = ""
    conditions: tuple[Condition, ...] = ()
    nodes: NodeCounts = NodeCounts()
    summary: Summary = Summary()
    stages: dict[str, int] = {}
    in_work: tuple[str, ...] = ()
    failed: tuple[FailedNode, ...] = ()
    runtime_classes: tuple[str, ...] = ()


class NodeRuntime(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: NodeRuntimeSpec = NodeRuntimeSpec()
    status: NodeRuntimeStatus = NodeRuntimeStatus()


class UnreadableNodeRuntime(NodeRuntime, frozen=True):
    """One that an older CRD let through: its metadata and its status are good, its `spec` is not the one asked for."""

    error: str = ""


class _Rest(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: msgspec.Raw = msgspec.Raw(b"{}")


def salvage(raw: bytes, error: str) -> NodeRuntime:
    """What can be told of an object that is no NodeRuntime for `error`, the decoder's words.

    Raises msgspec.MsgspecError when not even its metadata can be read.
    """
    rest = msgspec.json.decode(raw, type=_Rest)
    try:
        status = msgspec.json.decode(rest.status, type=NodeRuntimeStatus)
    except msgspec.MsgspecError:  # of another release: it is written anew
        status = NodeRuntimeStatus()
    return UnreadableNodeRuntime(metadata=rest.metadata, status=status, error=error)


class RevisionData(_Spec, frozen=True):
    """What a node is installed and uninstalled by: the data of a ControllerRevision, and what is hashed."""

    phases: Phases = Phases()
    handlers: tuple[Handler, ...] = ()
    snapshotters: tuple[Snapshotter, ...] = ()
    image_pull_secrets: tuple[dict[str, Any], ...] = ()


def revision_data(spec: NodeRuntimeSpec) -> RevisionData:
    """The part of `spec` whose change re-installs."""
    return RevisionData(
        phases=spec.phases,
        handlers=spec.handlers,
        snapshotters=spec.snapshotters,
        image_pull_secrets=spec.image_pull_secrets,
    )


def revision_hash(data: RevisionData) -> str:
    """Ten hex digits that name `data`: sha256 of its canonical JSON (keys sorted, defaults left out)."""
    return hashlib.sha256(msgspec.json.encode(data, order="sorted")).hexdigest()[:10]


def revision_name(runtime: str, revision: str) -> str:
    """Name of the ControllerRevision that keeps `revision` of `runtime`."""
    return f"{runtime}-{revision}"
