"""`NodeRuntime` (`runtime-reconciler.io/v1alpha1`): the types, their defaults, their revision.

The CRD's schema and the page docs/api.md are made from these types (`reconciler.api.crd`), the docstring below a field
included, so a field is described here once. What a vendor may say of a pod has the meaning that it has in a Pod.
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
    """Name of the RuntimeClass; pods ask for it by `runtimeClassName`."""
    overhead: dict[str, Any] | None = None
    """What a pod costs beside its containers, as in a RuntimeClass: `{podFixed: {memory: 160Mi}}`."""


class Handler(_Spec, frozen=True):
    """One runtime handler that containerd's CRI must serve."""

    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    """Name of the handler in containerd's CRI: what a RuntimeClass calls `handler`."""
    runtime_type: str = "io.containerd.runc.v2"
    """Type of the shim; containerd finds its binary by it: `io.containerd.kata.v2` is `containerd-shim-kata-v2`."""
    runtime_path: str | None = None
    """Absolute path of the shim's binary on the host. containerd 1.6 reads it and does not use it."""
    snapshotter: str | None = None
    """Snapshotter of this handler's pods. containerd 1.6 does not use it."""
    pod_annotations: tuple[str, ...] = ()
    """Annotations of a pod that are handed to the runtime; `*` at the end of a key stands for anything."""
    privileged_without_host_devices: bool | None = None
    """Whether a privileged container gets none of the host's devices."""
    options: dict[str, Any] = {}
    """Options of the shim, as in containerd's configuration: `{ConfigPath: /opt/kata/…/configuration.toml}`."""
    extra: dict[str, Any] = {}
    """Further keys of the handler's table (`base_runtime_spec`, `cni_conf_dir` …); refused where this containerd does
    not know one."""
    written_by: WrittenBy = WrittenBy.AGENT
    """Who writes the handler. `Agent`: the node's agent, as a transaction. `Payload`: the phase's own script; then
    it is only verified that CRI serves it."""
    runtime_class: RuntimeClassSpec | None = None
    """A RuntimeClass that is made for this handler and bound to the nodes that have it."""


class Snapshotter(_Spec, frozen=True):
    """A proxy snapshotter plugin."""

    name: Name
    """Name of the plugin, which `handlers[].snapshotter` refers to."""
    address: str
    """Absolute path of its socket on the host."""


class Taint(_Spec, frozen=True):
    """A taint that new nodes of this cluster register with."""

    key: str
    """Key of the taint."""
    effect: str
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`."""
    value: str = ""
    """Value of the taint; for eyes: key and effect tell which one it is."""


class NodeLabel(_Spec, frozen=True):
    """A node label by which a payload says that it is done."""

    key: str
    """Key of the label."""
    value: str
    """Value that means done."""


class Completion(_Spec, frozen=True):
    """How a phase says that it is done: by the container's exit with 0 (the default), or by a node label."""

    node_label: NodeLabel | None = None
    """For payloads that label the node and then sleep; the pod is ended by us. The label is taken off before."""


class Phase(_Spec, frozen=True):
    """One phase: the parts of a pod that are the vendor's."""

    image: str
    """Image of the payload. Pin it by digest: what installed a node must be there to uninstall it."""
    image_pull_policy: str | None = None
    """As in a container: `Always`, `IfNotPresent` or `Never`."""
    command: tuple[str, ...] = ()
    """As in a container; the image's entry point by default."""
    args: tuple[str, ...] = ()
    """As in a container."""
    env: tuple[dict[str, Any], ...] = ()
    """As in a container."""
    volumes: tuple[dict[str, Any], ...] = ()
    """As in a pod; host paths are how a payload puts its binaries on the node."""
    volume_mounts: tuple[dict[str, Any], ...] = ()
    """As in a container."""
    resources: dict[str, Any] | None = None
    """As in a container."""
    security_context: dict[str, Any] | None = None
    """As in a container; `privileged: true` for what changes the host."""
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    """As in a pod."""
    host_network: bool = False
    """As in a pod."""
    service_account_name: str | None = None
    """A ServiceAccount of our namespace; without one the pod gets no token."""
    lifecycle: dict[str, Any] | None = None
    """As in a container. A preStop hook that restarts containerd is survived; better have none."""
    termination_grace_period_seconds: Annotated[int, Meta(ge=0)] = 30
    """As in a pod, in seconds."""
    completion: Completion = Completion()
    """How the phase says that it is done."""
    timeout_seconds: Annotated[int, Meta(ge=1, le=86400)] = 600
    """Seconds that one attempt may take, its pod's start included. Then a payload that runs has failed and is tried
    again; a pod that does not start makes the node stuck."""


class Phases(_Spec, frozen=True):
    """One bare pod per node, phase and attempt. A phase that is left out is skipped."""

    pre_install: Phase | None = None
    """Before `install`: what a node needs to be fit for it."""
    install: Phase | None = None
    """Puts binaries on the node. It need not touch containerd, and must bear being run again."""
    uninstall: Phase | None = None
    """Takes away what `install` brought, also half of it. The handlers have gone from containerd before."""
    post_uninstall: Phase | None = None
    """After `uninstall`: what `preInstall` brought."""


class Canary(_Spec, frozen=True):
    """The first nodes of a new revision; the rest waits until they are done."""

    count: Annotated[int, Meta(ge=0)] = 1
    """Number of nodes; 0: no canary."""
    pause: bool = False
    """Whether the rest waits for a person, who sets this to false."""


class Rollout(_Spec, frozen=True):
    """How a change goes through the fleet. Changing this re-installs nothing."""

    max_unavailable: IntOrPercent = 1
    """Nodes that are worked on at once: a count, or a percentage of the selected nodes, rounded down, at least 1.
    `0` and `0%` are refused; `paused` holds a rollout."""
    canary: Canary = Canary()
    """The first nodes of a new revision."""
    bake_seconds: Annotated[int, Meta(ge=0, le=86400)] = 30
    """Seconds that a node must stay healthy, with its handlers served, before it counts as done."""
    error_budget: IntOrPercent = 0
    """Failed and stuck nodes that are tolerated, a count or a percentage (rounded down); one more halts the rollout.
    Deletions are never halted."""
    order: tuple[LabelSelector, ...] = ()
    """Groups of nodes, one after the other; nodes in none of them come after all, control planes last."""


class Upgrade(_Spec, frozen=True):
    """How a node gets from one revision to the next."""

    strategy: Strategy = Strategy.IN_PLACE
    """`InPlace` installs over the old revision; `Reinstall` uninstalls that first, by its own payload."""


class Uninstall(_Spec, frozen=True):
    """How a node is left."""

    when_in_use: WhenInUse = WhenInUse.WAIT
    """What happens on a node whose running pods still use a handler: `Wait` for them, or `Force`. Holds for upgrades
    that take a handler away, too."""


class NodeRuntimeSpec(_Spec, frozen=True):
    """What is wanted on which nodes. A change of phases, handlers, snapshotters or pull secrets is a new revision."""

    node_selector: LabelSelector = LabelSelector()
    """Nodes that shall have the runtime; an empty one selects all. A node that is deselected is uninstalled after a
    minute."""
    paused: bool = False
    """Nothing new starts, deletion included; what has begun on a node ends."""
    handlers: tuple[Handler, ...] = ()
    """What containerd's CRI must serve; may be empty where the payload edits by itself."""
    snapshotters: tuple[Snapshotter, ...] = ()
    """Proxy snapshotter plugins for containerd."""
    startup_taints: tuple[Taint, ...] = ()
    """Taints of new nodes that are taken off when the runtime is ready there, and never at a failure."""
    phases: Phases = Phases()
    """The vendor's payload."""
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    """Secrets of our namespace for the payload's images: `[{name: my-registry}]`."""
    rollout: Rollout = Rollout()
    """How a change goes through the fleet."""
    upgrade: Upgrade = Upgrade()
    """How a node gets from one revision to the next."""
    uninstall: Uninstall = Uninstall()
    """How a node is left."""


class NodeCounts(_Spec, frozen=True):
    """Nodes of this NodeRuntime; those that cannot take part are not among them."""

    total: int = 0
    """Nodes that are selected, or still carry something."""
    ready: int = 0
    """Nodes that serve the present revision."""
    updating: int = 0
    """Nodes that are being worked on."""
    failed: int = 0
    """Nodes that were given up on at this revision."""
    stuck: int = 0
    """Nodes past a deadline."""


class Summary(_Spec, frozen=True):
    """What `kubectl get noderuntimes` shows and no path of a column can put together."""

    ready: str = ""
    """`7/9`: nodes that are ready, of how many."""
    stage: str = ""
    """Where most nodes at work are; where most nodes are when none is at work."""


class FailedNode(_Spec, frozen=True):
    """A node that is failed or stuck."""

    node: str
    """Name of the Node."""
    stage: str
    """Stage in which it is."""
    reason: str
    """Why, in one word."""
    message: str = ""
    """Why, in words."""


class NodeRuntimeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Status is written whole; `inWork` holds the slots and is changed by compare-and-swap only."""

    observed_generation: int = 0
    """Generation of the spec that this status speaks of."""
    revision: str = ""
    """The present revision: a hash of phases, handlers, snapshotters and pull secrets."""
    conditions: tuple[Condition, ...] = ()
    """`Available`, `Progressing`, `Degraded`, `Stuck`, `ForeignInstaller`."""
    nodes: NodeCounts = NodeCounts()
    """How many nodes are where."""
    summary: Summary = Summary()
    """For the columns of `kubectl get`."""
    stages: dict[str, int] = {}
    """Number of nodes by stage."""
    in_work: tuple[str, ...] = ()
    """Nodes that hold a slot of `rollout.maxUnavailable`."""
    failed: tuple[FailedNode, ...] = ()
    """Nodes that are failed or stuck, at most 20 of them."""
    runtime_classes: tuple[str, ...] = ()
    """RuntimeClasses that were made."""


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
