"""Every name that is written into the Kubernetes API, once.

Labels, annotations, finalizers and condition types are API: people select by them and other
programs read them. Nothing else in the project may spell one of them out.
"""

from __future__ import annotations

GROUP = "runtime-reconciler.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "NodeRuntime"
PLURAL = "noderuntimes"
SHORT_NAME = "nrt"

RUNTIME_NAME_MAX = 40
"""Longest name of a NodeRuntime: it becomes part of pod names and of label keys (63 characters)."""

NAMESPACE = "runtime-reconciler"
"""Namespace of the controller, the agent, phase pods and ControllerRevisions, unless told otherwise."""

FINALIZER = f"{GROUP}/nodes"
"""On a NodeRuntime from before its first node is touched until its last one is clean."""

STAGE_LABEL_PREFIX = f"stage.{GROUP}/"
"""Node label `stage.runtime-reconciler.io/<runtime>`: for eyes and selectors, never read back."""

STATE_ANNOTATION_PREFIX = f"state.{GROUP}/"
"""Node annotation `state.runtime-reconciler.io/<runtime>`: JSON of `NodeState`, the only store of progress."""

PRESENT_LABEL_PREFIX = f"{GROUP.split('.')[0]}.node-restriction.kubernetes.io/"
"""Node label `runtime-reconciler.node-restriction.kubernetes.io/<runtime>: present`, which kubelets may not set."""
PRESENT_LABEL_VALUE = "present"

REPORT_ANNOTATION = f"agent.{GROUP}/report"
"""Node annotation: JSON of `Report`, written by the node's agent only."""

SERVING_CONDITION = "ContainerdServing"
"""Node condition, written by the node's agent only."""

CONTESTED_CONDITION = "ConfigContested"
"""Node condition, written by the node's agent only, and only once somebody has contested the configuration."""

AGENT_CONDITIONS = (SERVING_CONDITION, CONTESTED_CONDITION)

RETRY_ANNOTATION_PREFIX = f"retry.{GROUP}/"
"""Node annotation `retry.runtime-reconciler.io/<runtime>`: a person asks for another try; taken off when heeded."""

SKIP_ANNOTATION_PREFIX = f"skip.{GROUP}/"
"""Node annotation `skip.runtime-reconciler.io/<runtime>`: a person says to count this node as clean on deletion."""

CONFIRM_DESELECT_ANNOTATION = f"{GROUP}/confirm-deselect-all"
"""NodeRuntime annotation `"true"`: yes, the selector may leave every installed node."""

COMPONENT_LABEL = f"{GROUP}/component"
"""On pods: `controller`, `agent`, `phase` or `teardown`. The controller's one pod watch selects by it."""
COMPONENT_AGENT = "agent"
COMPONENT_CONTROLLER = "controller"
COMPONENT_PHASE = "phase"
COMPONENT_TEARDOWN = "teardown"
"""The pod that ends agents and controller before the product is removed."""

RUNTIME_LABEL = f"{GROUP}/runtime"
"""On phase pods, ControllerRevisions and RuntimeClasses: name of the NodeRuntime."""
PHASE_LABEL = f"{GROUP}/phase"
"""On phase pods: the stage they do."""
NODE_LABEL = f"{GROUP}/node"
"""On phase pods: hash of the node's name (node names may be longer than a label value)."""

UID_ANNOTATION = f"{GROUP}/noderuntime-uid"
"""On phase pods, ControllerRevisions and RuntimeClasses: UID of the NodeRuntime they belong to."""
REVISION_ANNOTATION = f"{GROUP}/revision"
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"

KILL_RETRY_ANNOTATION = f"{GROUP}/kill-retry"
"""Pod annotation `"true"`: a pod that wants its kill retried at once when containerd is back."""

STOP_NAME = "runtime-reconciler-stop"
"""ConfigMap in our namespace: while it is there, nothing new begins. Who made it and why is in its data."""
STOP_REASON = "reason"
STOP_BY = "by"
STOP_AT = "at"
"""Keys of its data, all optional: words of a person, who that was, and when (RFC 3339)."""

LEASE_NAME = "runtime-reconciler-controller"
FIELD_MANAGER = "runtime-reconciler"
AGENT_FIELD_MANAGER = "runtime-reconciler-agent"

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
HOST_STATE_DIR = "/var/lib/runtime-reconciler"
"""On the host: journals, the lock, and files set aside."""


def stage_label(runtime: str) -> str:
    """Key of the node label that shows the stage of `runtime`."""
    return STAGE_LABEL_PREFIX + runtime


def state_annotation(runtime: str) -> str:
    """Key of the node annotation that holds the `NodeState` of `runtime`."""
    return STATE_ANNOTATION_PREFIX + runtime


def present_label(runtime: str) -> str:
    """Key of the node label that RuntimeClasses of `runtime` select."""
    return PRESENT_LABEL_PREFIX + runtime


def retry_annotation(runtime: str) -> str:
    """Key of the node annotation by which a person asks for another try."""
    return RETRY_ANNOTATION_PREFIX + runtime


def skip_annotation(runtime: str) -> str:
    """Key of the node annotation by which a person gives a node up."""
    return SKIP_ANNOTATION_PREFIX + runtime
