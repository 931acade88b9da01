"""What is wrong with a NodeRuntime's spec beyond the types of its fields.

The CRD of this release refuses the same (`reconciler.api.crd`). An object that an older CRD let through, or that
was stored before the CRD was there, is told of by the controller, and nothing is started by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from reconciler.api.meta import LabelSelector, Requirement
from reconciler.api.noderuntime import IntOrPercent, NodeRuntimeSpec, Rollout

SET_OPERATORS = ("In", "NotIn")
EXISTENCE_OPERATORS = ("DoesNotExist", "Exists")
"""Of a label selector's expressions: `k8s.io/apimachinery/pkg/apis/meta/v1/validation`."""
TAINT_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
"""`k8s.io/kubernetes/pkg/apis/core/validation`."""
SOCKET_PATH_MAX = 107
"""Bytes: `sun_path` of a unix socket's address holds 108, the last of them 0 (unix(7))."""


def errors(spec: NodeRuntimeSpec) -> list[str]:
    """One line for each error: the field's path, and what it may be."""
    return [*_selectors(spec), *_twice(spec), *_values(spec)]


def _selectors(spec: NodeRuntimeSpec) -> Iterator[str]:
    yield from _selector("spec.nodeSelector", spec.node_selector)
    for place, group in enumerate(spec.rollout.order):
        yield from _selector(f"spec.rollout.order[{place}]", group)


def _selector(path: str, selector: LabelSelector) -> Iterator[str]:
    for place, requirement in enumerate(selector.match_expressions):
        if why := _requirement(requirement):
            yield f"{path}.matchExpressions[{place}]: {why}"


def _requirement(requirement: Requirement) -> str:
    operator = requirement.operator
    if operator in SET_OPERATORS:
        return "" if requirement.values else f"operator {operator} needs values"
    if operator in EXISTENCE_OPERATORS:
        return f"operator {operator} takes no values" if requirement.values else ""
    return f"operator {operator!r} is not one of In, NotIn, Exists, DoesNotExist"


def _twice(spec: NodeRuntimeSpec) -> Iterator[str]:
    classes = (h.runtime_class.name for h in spec.handlers if h.runtime_class is not None)
    for path, values in (
        ("spec.handlers[].name", (h.name for h in spec.handlers)),
        ("spec.handlers[].runtimeClass.name", classes),
        ("spec.snapshotters[].name", (s.name for s in spec.snapshotters)),
        ("spec.snapshotters[].address", (s.address for s in spec.snapshotters)),
    ):
        for value in _repeated(values):
            yield f"{path}: {value} is there twice"


def _repeated(values: Iterable[str]) -> list[str]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


def _values(spec: NodeRuntimeSpec) -> Iterator[str]:
    for snapshotter in spec.snapshotters:
        if not snapshotter.address.startswith("/"):
            yield f"spec.snapshotters[].address: {snapshotter.address!r} is not an absolute path"
        elif len(snapshotter.address.encode()) > SOCKET_PATH_MAX:
            yield f"spec.snapshotters[].address: {snapshotter.address!r} is longer than {SOCKET_PATH_MAX} bytes"
    for taint in spec.startup_taints:
        if taint.effect not in TAINT_EFFECTS:
            yield f"spec.startupTaints[].effect: {taint.effect!r} is not one of {', '.join(TAINT_EFFECTS)}"
    for place, secret in enumerate(spec.image_pull_secrets):
        name = secret.get("name")
        if not isinstance(name, str) or not name:
            yield f"spec.imagePullSecrets[{place}].name: {name!r} is not the name of a Secret"
    yield from _counts(spec.rollout)


def _counts(rollout: Rollout) -> Iterator[str]:
    if _number(rollout.max_unavailable) < 1:
        yield (
            f"spec.rollout.maxUnavailable: {rollout.max_unavailable} is less than 1, and no node would have its turn; "
            "spec.paused: true holds a rollout"
        )
    if _number(rollout.error_budget) < 0:
        yield f"spec.rollout.errorBudget: {rollout.error_budget} is less than 0"


def _number(value: IntOrPercent) -> int:
    return value if isinstance(value, int) else int(value.removesuffix("%"))
