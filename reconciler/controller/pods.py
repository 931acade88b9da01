"""Phase pods: their names, their bodies, and what a Pod object says about them."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from reconciler.api import names
from reconciler.api.meta import Pod, StateWaiting
from reconciler.api.node import NodeState, Stage
from reconciler.api.noderuntime import Phase, RevisionData
from reconciler.phases.facts import Outcome, PodFacts

CONTAINER = "payload"
PULL_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
"""Of a kubelet (`pkg/kubelet/images/types.go`), which changes from one to another and back at every try."""
PULL_BACKOFF = "ErrImagePull: "
"""What follows is why, in the message of a container in back-off (`pkg/kubelet/images/image_manager.go`)."""


def node_hash(node: str) -> str:
    """Label value that stands for a node's name, which may be longer than 63 characters."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def pod_name(runtime: str, node: str, state: NodeState) -> str:
    """One name for one attempt: making it twice makes one pod."""
    identity = hashlib.sha256(f"{node}/{state.uid}/{state.target}".encode()).hexdigest()[:8]
    return f"rr-{runtime}-{state.stage}-{identity}-{state.attempt}"


def phase_of(data: RevisionData, stage: Stage) -> Phase | None:
    """The phase that is done in `stage`."""
    phases = data.phases
    return {
        Stage.PRE_INSTALL: phases.pre_install,
        Stage.INSTALL: phases.install,
        Stage.UNINSTALL: phases.uninstall,
        Stage.POST_UNINSTALL: phases.post_uninstall,
    }.get(stage)


def build(runtime: str, node: str, namespace: str, state: NodeState, data: RevisionData) -> dict[str, Any]:
    """The Pod of this state. Raises ValueError when the revision has no such phase."""
    phase = phase_of(data, state.stage)
    if phase is None:
        raise ValueError(f"revision {state.target} of {runtime} has no phase {state.stage}")
    vendor = msgspec.to_builtins(phase)
    container = {
        key: vendor[key]
        for key in (
            "image",
            "imagePullPolicy",
            "command",
            "args",
            "volumeMounts",
            "resources",
            "securityContext",
            "lifecycle",
        )
        if key in vendor
    }
    container["name"] = CONTAINER
    container["env"] = [*vendor.get("env", ()), {"name": "NODE_NAME", "value": node}]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    spec: dict[str, Any] = {
        "nodeName": node,
        "restartPolicy": "Never",
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": phase.service_account_name is not None,
        "terminationGracePeriodSeconds": phase.termination_grace_period_seconds,
        "hostPID": phase.host_pid,
        "hostNetwork": phase.host_network,
        "containers": [container],
    }
    if phase.volumes:
        spec["volumes"] = vendor["volumes"]
    if phase.service_account_name is not None:
        spec["serviceAccountName"] = phase.service_account_name
    if data.image_pull_secrets:
        spec["imagePullSecrets"] = list(data.image_pull_secrets)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(runtime, node, state),
            "namespace": namespace,
            "labels": {
                names.COMPONENT_LABEL: names.COMPONENT_PHASE,
                names.RUNTIME_LABEL: runtime,
                names.PHASE_LABEL: str(state.stage),
                names.NODE_LABEL: node_hash(node),
            },
            "annotations": {
                names.UID_ANNOTATION: state.uid,
                names.REVISION_ANNOTATION: state.target,
                names.ATTEMPT_ANNOTATION: str(state.attempt),
            },
        },
        "spec": spec,
    }


def facts_of(pod: Pod, *, ended: bool, asked: bool) -> PodFacts | None:
    """What decisions need of a phase pod; None when it does not carry our marks whole.

    `ended`: the agent says that nothing of it runs. `asked`: we have asked for its deletion already.
    """
    meta = pod.metadata
    try:
        stage = Stage(meta.labels[names.PHASE_LABEL])
        attempt = int(meta.annotations[names.ATTEMPT_ANNOTATION])
        revision = meta.annotations[names.REVISION_ANNOTATION]
    except (KeyError, ValueError):
        return None
    outcome, reason, message = _outcome(pod)
    if meta.creation_timestamp is None:
        return None
    return PodFacts(
        uid=meta.uid,
        stage=stage,
        revision=revision,
        attempt=attempt,
        outcome=outcome,
        created=meta.creation_timestamp,
        deleting=asked or meta.deletion_timestamp is not None,
        ended=ended,
        reason=reason,
        message=message,
        name=meta.name,
    )


def _outcome(pod: Pod) -> tuple[Outcome, str, str]:
    """Judged by the container's exit, not by the pod's phase: a pod that never ran costs no attempt.

    One that is over while its container is said to run has run: pod garbage collection and a kubelet that finds no
    trace of the container change the phase alone.
    """
    status = next((s for s in pod.status.container_statuses if s.name == CONTAINER), None)
    ended = None if status is None else status.state.terminated
    if ended is not None and (ended.started_at is not None or ended.exit_code == 0):
        if ended.exit_code == 0:
            return Outcome.SUCCEEDED, "", ""
        return Outcome.FAILED, "PayloadFailed", f"exit code {ended.exit_code}: {ended.message or ended.reason}"
    if pod.status.phase == "Failed" and status is not None and status.state.running is not None:
        return Outcome.FAILED, "PayloadFailed", f"{pod.status.reason or 'Failed'}: {pod.status.message}"
    if pod.status.phase in ("Failed", "Succeeded"):
        reason = pod.status.reason or (ended.reason if ended else "") or "PodRefused"
        return Outcome.NEVER_RAN, reason, pod.status.message or (ended.message if ended else "")
    if status is not None and status.state.waiting is not None:
        return Outcome.PENDING, *_waits(status.state.waiting)
    if status is not None and status.state.running is not None:
        return Outcome.RUNNING, "", ""
    return Outcome.PENDING, "", ""


def _waits(waiting: StateWaiting) -> tuple[str, str]:
    """One reason and one message for as long as an image cannot be pulled."""
    if waiting.reason in PULL_REASONS:
        return "ImagePullFailed", waiting.message.rpartition(PULL_BACKOFF)[2]
    return waiting.reason, waiting.message
