"""What forbids to start a NodeRuntime on further nodes, as far as the stores tell. Reads stores only; no IO."""

from __future__ import annotations

import re
from datetime import datetime

from reconciler.api.node import Problem
from reconciler.api.noderuntime import NodeRuntime, UnreadableNodeRuntime
from reconciler.api.validation import errors
from reconciler.controller.world import World

FORBIDDEN = "Forbidden"
"""Reason of a right that is missing."""
_RIGHTS = re.compile(r'User "[^"]*" cannot ')
_NO_ACCOUNT = re.compile(r'error looking up service account (\S+?): serviceaccount "[^"]*" not found')
"""`k8s.io/kubernetes/plugin/pkg/admission/serviceaccount`."""
CONFLICTS = {
    "handler": "HandlerConflict",
    "RuntimeClass": "RuntimeClassConflict",
    "snapshotter": "SnapshotterConflict",
    "snapshotter address": "SnapshotterConflict",
}
"""What two NodeRuntimes cannot both have → reason."""


def found(world: World, runtime: NodeRuntime) -> Problem | None:
    """The first thing that is wrong, or None."""
    return blind(world) or _invalid(runtime) or _contested(world, runtime)


def blind(world: World) -> Problem | None:
    """What we may not list or watch: the stores cannot be believed."""
    if not world.blind:
        return None
    resource = min(world.blind)
    return forbidden(world.blind[resource])


def forbidden(message: str) -> Problem:
    """What a 403 says, in the API server's own words: a right of ours is missing, or admission refuses the object. Both
    have one reason; an authorizer is known by its words
    (`k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go`)."""
    if _RIGHTS.search(message) is not None:
        return Problem(FORBIDDEN, f"{message}; see the rules of deploy/base/rbac.yaml")
    if (missing := _NO_ACCOUNT.search(message)) is not None:
        return Problem("ServiceAccountMissing", f"{message}; create ServiceAccount {missing[1]}, or name another")
    return Problem("AdmissionRefused", message)


def _invalid(runtime: NodeRuntime) -> Problem | None:
    if isinstance(runtime, UnreadableNodeRuntime):
        return Problem("InvalidSpec", f"the object cannot be read: {runtime.error}; correct it, and update the CRD")
    if wrong := errors(runtime.spec):
        return Problem("InvalidSpec", "; ".join(wrong))
    return None


def _contested(world: World, runtime: NodeRuntime) -> Problem | None:
    """Two NodeRuntimes that want one thing: the older wins, the other says so."""
    mine = _claims(runtime)
    for other in sorted(world.runtimes.list(), key=_age):
        if other.metadata.uid == runtime.metadata.uid or _age(other) > _age(runtime):
            continue
        for kind, wanted in sorted(mine & _claims(other)):
            name = other.metadata.name
            return Problem(
                CONFLICTS[kind],
                f"NodeRuntime {name} is older and has {kind} {wanted} already; "
                f"rename it in one of the two, or delete {name}",
            )
    return None


def _claims(runtime: NodeRuntime) -> set[tuple[str, str]]:
    spec = runtime.spec
    return {
        *(("handler", h.name) for h in spec.handlers),
        *(("RuntimeClass", h.runtime_class.name) for h in spec.handlers if h.runtime_class is not None),
        *(("snapshotter", s.name) for s in spec.snapshotters),
        *(("snapshotter address", s.address) for s in spec.snapshotters),
    }


def _age(runtime: NodeRuntime) -> tuple[datetime, str]:
    created = runtime.metadata.creation_timestamp
    if created is None:
        raise ValueError(f"NodeRuntime {runtime.metadata.name} has no creationTimestamp")
    return created, runtime.metadata.name
