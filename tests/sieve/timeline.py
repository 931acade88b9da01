"""A change of an object in the words of a timeline; nothing for those that tell nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.api import names
from reconciler.api.node import decode_state
from reconciler.sim.kinds import Kind, Object
from reconciler.sim.store import Event


def of(kind: Kind, event: Event) -> Iterator[str]:
    """`versions: what` of one event."""
    new = None if event.new is None else event.new.object
    old = None if event.old is None else event.old.object
    words = {"nodes": _node, "pods": _pod, "noderuntimes": _runtime}.get(kind.plural)
    if kind.plural == "leases":
        return
    told = ["gone"] if new is None else ["made"] if old is None else []
    if words is not None and new is not None:
        before = {} if old is None else words(old)
        told += [f"{key}={value}" for key, value in words(new).items() if before.get(key) != value]
    yield f"v{event.version} {kind.plural} {event.key[1]}: {', '.join(told) or '(other)'}"


def _node(node: Object) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for key, text in (node["metadata"].get("annotations") or {}).items():
        if key.startswith(names.STATE_ANNOTATION_PREFIX):
            state = decode_state(text)
            words = f"{state.stage} #{state.attempt} of {state.target[:6]} (installed {state.installed[:6] or '-'})"
            told[key.removeprefix(names.STATE_ANNOTATION_PREFIX)] = words
        elif key == names.REPORT_ANNOTATION:
            told["report"] = text
    conditions = (node.get("status") or {}).get("conditions") or ()
    told.update({condition["type"]: condition["status"] for condition in conditions})
    return told


def _pod(pod: Object) -> dict[str, Any]:
    status, meta = pod.get("status") or {}, pod["metadata"]
    states = [s.get("state") or {} for s in status.get("containerStatuses") or ()]
    return {
        "phase": status.get("phase"),
        "containers": [key for state in states for key in state],
        "deleting": meta.get("deletionGracePeriodSeconds"),
    }


def _runtime(runtime: Object) -> dict[str, Any]:
    meta, status = runtime["metadata"], runtime.get("status") or {}
    return {
        "generation": meta.get("generation"),
        "finalizers": meta.get("finalizers"),
        "deleting": "deletionTimestamp" in meta,
        "inWork": status.get("inWork"),
    }
