"""What a person can do about a reason: one sentence each, for somebody who was woken up by it."""

from __future__ import annotations

ON_THE_HOST = "run `reconciler config check` on the node: it names the file, the line and what mends it"
HAND_BACK = "take it out by hand, or have what wrote it take it out"

ADVICE: dict[str, str] = {
    # of a phase pod
    "ImagePullFailed": "correct the image or its tag, spec.imagePullSecrets or the registry",
    "CreateContainerConfigError": "a ConfigMap, Secret or key that the phase names is not there",
    "CreateContainerError": "the phase's command or mounts do not fit the image or the node",
    "RunContainerError": "the phase's command cannot be run on this node",
    "StartError": "the phase's command cannot be run on this node",
    "PayloadFailed": "read what the payload said, in its message and in its log",
    "PayloadTimedOut": "read in its log where it hangs; raise phases.*.timeoutSeconds if it only needs longer",
    "PodRefused": "the node's kubelet refuses the pod",
    "PodEnding": "if it lasts, kubelet cannot kill the pod: look at kubelet and containerd on the node",
    "OutOfcpu": "make room on the node, or lower phases.*.resources",
    "OutOfmemory": "make room on the node, or lower phases.*.resources",
    "OutOfpods": "make room on the node: it runs as many pods as it may",
    "NodeAffinity": "the node no longer fits the phase pod",
    "Evicted": "the node is short of disk or memory: make room",
    # of the agent and of containerd
    "AgentMissing": "`kubectl -n {namespace} get pods -o wide --field-selector spec.nodeName={node}` shows the agent; "
    "does its DaemonSet tolerate this node's taints, and can its image be pulled?",
    "WaitingForAgent": "if it lasts, read the log of the agent on this node",
    "AgentWaiting": "read the log of the agent on this node",
    "AgentFailed": "read the log of the agent on this node",
    "HandlerMissing": "the payload was to write the handler and CRI does not serve it: read the payload's log; "
    + ON_THE_HOST,
    "HostConfig": "the agent could not work on the host: read its log; " + ON_THE_HOST,
    "PodStillRunning": "a container of the payload does not end: stop it with crictl on the node",
    "RevisionMissing": "somebody deleted the ControllerRevision: restore it from a backup; without one, clean the node "
    "by hand, delete the NodeRuntime, and `kubectl reconciler skip {node}`",
    "ContainerdNotServing": "look at containerd on the node: `systemctl status containerd`, `journalctl -u containerd`",
    "NotServing": "look at containerd on the node: `systemctl status containerd`, `journalctl -u containerd`",
    "CRIMissing": "containerd runs without its CRI plugin: " + ON_THE_HOST,
    "UnitFailed": "read `journalctl -u containerd` on the node; " + ON_THE_HOST,
    "StoppedByAdmin": "a person has stopped containerd on the node and it is not started for them: start it",
    "Hung": "containerd runs and does not answer: read its journal; a restart of it may be needed",
    "ConfigContested": "one payload broke the same file three times, and the guard keeps its hands off: "
    + ON_THE_HOST
    + "; then mend the payload",
    # of the configuration (the codes of `reconciler config`)
    "InvalidToml": ON_THE_HOST,
    "DanglingImport": ON_THE_HOST,
    "DuplicateImport": ON_THE_HOST,
    "ImportCycle": ON_THE_HOST,
    "MissingConfig": ON_THE_HOST,
    "CRIDisabled": "take `cri` out of disabled_plugins in containerd's configuration on the node",
    "CRIInvalid": ON_THE_HOST,
    "UnsupportedVersion": "this containerd is too old or too new for this release: leave the node out of "
    "spec.nodeSelector, or change containerd",
    "UnsupportedDistribution": "this kind of node is not supported: leave it out of spec.nodeSelector",
    "TemplateFile": "the configuration is made from a template of the distribution: edit that one",
    "InlinePlugins": "write the inline table of plugins in containerd's configuration as ordinary tables",
    "ShadowedByImport": "an import replaces what would be written: " + ON_THE_HOST,
    "HandlerConflict": "remove the handler with what installed it, or name another one in spec.handlers",
    "HandlerInUse": "end the pods that use the handler, or set uninstall.whenInUse: Force",
    "DefaultRuntimeMissing": "point default_runtime_name in containerd's configuration to a runtime that stays",
    "RegistryConflict": "containerd takes config_path or mirrors, not both: remove one of them on the node",
    "DialectMismatch": "tables of two versions of the file's format are mixed: " + ON_THE_HOST,
    "IncompleteProxyPlugin": "a proxy plugin lacks its type or address: " + ON_THE_HOST,
    "DirectoryInDropIns": "move the directory out of the drop-in directory on the node",
    "BackupInDropIns": "move the backup file out of the drop-in directory on the node: containerd reads it, too",
    "Busy": "somebody else holds the lock of the configuration on the node; it goes on by itself when they are done",
    "ForeignChange": "somebody edited the configuration at the same time; it is tried again when they are done",
    "NotWritable": "the configuration on the node cannot be written: read-only, immutable, or the disk is full",
    "UnsupportedSyntax": "simplify the named lines of containerd's configuration: they cannot be edited safely",
    "PendingForeignChange": "somebody changed the configuration and did not restart containerd: restart it, or take "
    "the change back",
    "VerifyFailed": "the change did not work and was undone: read the agent's log and containerd's journal",
    "NotOurs": "another tool owns that part of the configuration: " + HAND_BACK,
    "Contested": "find who else edits containerd's configuration on this node (a DaemonSet, configuration management) "
    "and end that",
    # of the switch that stops everything
    "Stopped": "`kubectl reconciler resume`, when what it was stopped for is over",
    "StopUnknown": "the agent must be able to see ConfigMap runtime-reconciler-stop: give it the right of its Role, or "
    "mend its way to the API server",
    # of the API server
    "Forbidden": "give the controller the right that the message names: see the rules of its ClusterRole",
    "ServiceAccountMissing": "create the ServiceAccount in our namespace, or name another one in the phase",
    "AdmissionRefused": "a policy, a quota or a webhook of the cluster refuses it: change that, or the NodeRuntime",
    "StepRefused": "the API server refuses a step: correct the NodeRuntime, or the policy in the way",
    "StateUnreadable": "remove the annotation to start afresh: "
    "`kubectl annotate node {node} state.runtime-reconciler.io/{runtime}-`",
    "NodeNotReady": "look at kubelet on the node; if its machine is gone, delete the Node",
}


DESCRIBE = "`kubectl -n {namespace} describe pod {pod}` says more"
LOGS = "`kubectl -n {namespace} logs {pod}`"
OF_THE_POD = {
    **dict.fromkeys(("PayloadFailed", "PayloadTimedOut"), LOGS),
    **dict.fromkeys(("ImagePullFailed", "CreateContainerConfigError", "CreateContainerError"), DESCRIBE),
    **dict.fromkeys(("RunContainerError", "StartError", "PodRefused", "PodEnding", "NodeAffinity"), DESCRIBE),
}
"""What more is to be read while the pod is there."""


def advice(reason: str, *, namespace: str, node: str, runtime: str, pod: str = "") -> str:
    """What to do about `reason`; empty when nothing is known that helps. `pod` is the one to look at, if any."""
    parts = [ADVICE.get(reason, ""), OF_THE_POD.get(reason, "") if pod else ""]
    text = "; ".join(part for part in parts if part)
    return text.format(namespace=namespace, node=node, runtime=runtime, pod=pod)
