"""What the registry refuses of single kinds: the few rules that we, or a spec that people write, can break.

After `pkg/apis/*/validation` of Kubernetes 1.34. Each takes the new object and the stored one (None: it is created).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from reconciler.api import names, quantity
from reconciler.sim.failures import Cause, bad_request
from reconciler.sim.metadata import label, qualified

Object = dict[str, Any]

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NOTE_MAX = 1024
WORD_MAX = 128
"""Letters of an Event's reason, action and reporting instance."""
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_FIXED_SPEC = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "containers", "initContainers")
_POD_FIELDS = frozenset(
    [
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    ]
)
_CONTAINER_FIELDS = frozenset(
    [
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    ]
)
"""Of `/openapi/v3/api/v1`."""


def pod(new: Object, old: Object | None) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    if old is not None:
        if _fixed(spec) != _fixed(old.get("spec") or {}):
            yield Cause("spec", _FIXED_SPEC)
        return
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    if not spec.get("containers"):
        yield Cause("spec.containers", "Required value")
    for place, container in enumerate(spec.get("containers") or ()):
        path = f"spec.containers[{place}]"
        for field in ("name", "image"):
            if not container.get(field):
                yield Cause(f"{path}.{field}", "Required value")
        policy = container.get("imagePullPolicy") or "IfNotPresent"
        if policy not in PULL_POLICIES:
            offered = ", ".join(f'"{one}"' for one in PULL_POLICIES)
            yield Cause(f"{path}.imagePullPolicy", f'Unsupported value: "{policy}": supported values: {offered}')
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                yield Cause(f"{path}.volumeMounts[{number}].name", f'Not found: "{mount.get("name")}"')


def unknown_in_pod(new: Object) -> list[str]:
    """Paths of fields that a Pod does not have, in the order in which the server names them."""
    spec = new.get("spec") or {}
    found = [
        f"spec.{group}[{place}].{field}"
        for group in ("containers", "initContainers")
        for place, container in enumerate(spec.get(group) or ())
        for field in container
        if field not in _CONTAINER_FIELDS
    ]
    return sorted([*found, *(f"spec.{field}" for field in spec if field not in _POD_FIELDS)])


def _fixed(spec: Object) -> Object:
    """What of a pod's spec cannot be changed."""
    kept = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for group in ("containers", "initContainers"):
        kept[group] = [{k: v for k, v in c.items() if k != "image"} for c in spec.get(group) or ()]
    return kept


def node(new: Object, old: Object | None) -> Iterator[Cause]:
    for place, taint in enumerate((new.get("spec") or {}).get("taints") or ()):
        if taint.get("effect") not in EFFECTS:
            offered = ", ".join(f'"{effect}"' for effect in EFFECTS)
            says = f'Unsupported value: "{taint.get("effect", "")}": supported values: {offered}'
            yield Cause(f"metadata.taints[{place}].effect", says)


def lease(new: Object, old: Object | None) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        _micro_time("Lease", spec.get(field))
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        yield Cause("spec.leaseDurationSeconds", f"Invalid value: {seconds}: must be greater than 0")
    if (count := spec.get("leaseTransitions")) is not None and count < 0:
        yield Cause("spec.leaseTransitions", f"Invalid value: {count}: must be greater than or equal to 0")


def event(new: Object, old: Object | None) -> Iterator[Cause]:
    _micro_time("Event", new.get("eventTime"))
    if old is None:
        yield from _new_event(new)
        return
    for field in ("regarding", "reason", "note", "action", "type", "eventTime"):
        if new.get(field) != old.get(field):
            yield Cause({"note": "message"}.get(field, field), f'Invalid value: "{new.get(field)}": field is immutable')
    if (series := new.get("series")) is not None:
        _micro_time("Event", series.get("lastObservedTime"))
        if series.get("count", 0) < 2:
            yield Cause("series.count", 'Invalid value: "": should be at least 2')


def _new_event(new: Object) -> Iterator[Cause]:
    if not new.get("eventTime"):
        yield Cause("eventTime", "Required value")
    if not new.get("reportingController"):
        yield Cause("reportingController", "Required value")
    else:
        yield from qualified(new["reportingController"], "reportingController")
    for field in ("reportingInstance", "action", "reason"):
        if not new.get(field):
            yield Cause(field, "Required value")
        elif len(new[field]) > WORD_MAX:
            yield Cause(field, f'Invalid value: "": can have at most {WORD_MAX} characters')
    if new.get("type") not in ("Normal", "Warning"):
        yield Cause("type", f'Invalid value: "": has invalid value: {new.get("type", "")}')
    if len(new.get("note", "")) > NOTE_MAX:
        yield Cause("message", f'Invalid value: "": can have at most {NOTE_MAX} characters')
    if not new["regarding"].get("namespace") and new["metadata"]["namespace"] not in ("default", "kube-system"):
        yield Cause("involvedObject.namespace", 'Invalid value: "": does not match event.namespace')


def runtime_class(new: Object, old: Object | None) -> Iterator[Cause]:
    """Quantities are the decoder's."""
    for resource, amount in ((new.get("overhead") or {}).get("podFixed") or {}).items():
        try:
            quantity.value(amount)
        except ValueError:
            why = f"overhead.podFixed.{resource}: quantities must match the regular expression"
            raise bad_request(f'RuntimeClass in version "v1" cannot be handled as a RuntimeClass: {why}') from None
    handler = new.get("handler") or ""
    if old is not None and handler != old.get("handler"):
        yield Cause("handler", f'Invalid value: "{handler}": field is immutable')
    elif old is None:
        yield from label(handler, "handler")


def controller_revision(new: Object, old: Object | None) -> Iterator[Cause]:
    if new.get("data") is None:
        yield Cause("data", "Required value: data is mandatory")
    elif old is not None and new["data"] != old.get("data"):
        yield Cause("data", "Invalid value: field is immutable")


def config_map(new: Object, old: Object | None) -> Iterator[Cause]:
    """The decoder's rule: `data` is a map of strings."""
    for key, value in (new.get("data") or {}).items():
        if not isinstance(value, str):
            raise bad_request(f'ConfigMap in version "v1" cannot be handled: data.{key}: expected a string')
    yield from ()


def node_runtime(new: Object, old: Object | None) -> Iterator[Cause]:
    name = new["metadata"]["name"]
    if len(name) > names.RUNTIME_NAME_MAX:
        says = f'Invalid value: "object": name is longer than {names.RUNTIME_NAME_MAX} characters'
        yield Cause("<nil>", says)


def _micro_time(kind: str, text: Any) -> None:
    """Raises ApiFailure 400 on a time without its six digits, as the decoder does."""
    if text and not (isinstance(text, str) and _MICRO_TIME.fullmatch(text)):
        why = f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00"'
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')
