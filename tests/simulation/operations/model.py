"""What was asked of a cluster, as plain data: its nodes, their labels, and the specs of its NodeRuntimes."""

from __future__ import annotations

import copy
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]


class Gone:
    """Stands for a field that is taken out."""

    def __repr__(self) -> str:
        return "GONE"


GONE = Gone()

STARTING = "sim/starting-"
"""Beginning of the key of the taint that every node registers with, one for each runtime."""


@dataclass
class Model:
    """`nodes`: name → labels. `runtimes`: name → spec, the oldest first."""

    nodes: dict[str, dict[str, str]]
    runtimes: dict[str, Spec] = field(default_factory=dict)
    vendor: set[str] = field(default_factory=set)
    """Runtimes that once had phases of which one does not undo the other: what they left is the vendor's."""

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def key(self) -> str:
        """The same for two models that ask for the same."""
        return json.dumps([self.nodes, list(self.runtimes.items())])

    @property
    def held(self) -> bool:
        """A person holds a rollout: how far it has come depends on what was there before."""
        return any(holds(spec) for spec in self.runtimes.values())

    def note_vendor(self) -> None:
        for name, spec in self.runtimes.items():
            if not undone(name, spec):
                self.vendor.add(name)


def holds(spec: Spec) -> bool:
    """Whether it is paused, or its canary is (then the rest of the nodes waits for a person)."""
    canary = spec.get("rollout", {}).get("canary", {})
    return bool(spec.get("paused")) or bool(canary.get("pause") and canary.get("count", 1))


def shim(runtime: str) -> str:
    """The binary that the payload of `runtime` brings."""
    return f"/opt/{runtime}/bin/shim"


def work(runtime: str, phase: str) -> list[str]:
    """Arguments of a payload that does what its phase is for."""
    what = {"install": [f"drop={shim(runtime)}"], "uninstall": [f"take={shim(runtime)}"]}
    return ["seconds=0.2", *what.get(phase, [])]


def undone(runtime: str, spec: Spec) -> bool:
    """Whether the phases bring the binary, and take it away."""
    phases = spec.get("phases", {})
    return all(work(runtime, name)[1] in phases.get(name, {}).get("args", ()) for name in ("install", "uninstall"))


def base(runtime: str) -> Spec:
    """The spec that a walk begins with."""
    return {
        "handlers": [handler(runtime)],
        "rollout": {"maxUnavailable": 2, "canary": {"count": 1}, "bakeSeconds": 1},
        "phases": {name: phase(runtime, name) for name in ("install", "uninstall")},
    }


def handler(runtime: str, number: int = 0) -> Spec:
    name = f"{runtime}-qemu" if number == 0 else f"{runtime}-more-{number}"
    return {
        "name": name,
        "runtimeType": f"io.containerd.{runtime}.v2",
        "runtimePath": shim(runtime),
        "runtimeClass": {"name": name},
    }


def phase(runtime: str, name: str) -> Spec:
    return {"image": "sim/payload:1", "args": work(runtime, name), "terminationGracePeriodSeconds": 1}


def snapshotter(runtime: str, number: int = 0) -> Spec:
    return {"name": f"{runtime}-nydus-{number}", "address": f"/run/{runtime}-{number}.sock"}


def fresh_item(runtime: str, path: str, number: int) -> Any:
    """What is put where a field's holder is missing, so that the field can be set in it."""
    match re.sub(r"^phases\.\w+", "phases.*", path):
        case "handlers[]":
            return handler(runtime, number)
        case "snapshotters[]":
            return snapshotter(runtime, number)
        case "startupTaints[]":
            return {"key": STARTING + runtime, "effect": "NoSchedule"}
        case "phases.*":
            return phase(runtime, path.rpartition(".")[2])
        case "imagePullSecrets[]":
            return {"name": f"registry-{number}"}
        case "handlers[].runtimeClass":
            return {"name": f"{runtime}-qemu" if number == 0 else f"{runtime}-more-{number}"}
        case "phases.*.completion.nodeLabel":
            return {"key": f"sim/{runtime}", "value": "yes"}
        case other:
            if other.endswith("matchExpressions[]"):
                return {"key": "pool", "operator": "Exists"}
            return {}


_PART = re.compile(r"(\w+)((?:\[\d+\])*)")


def edit(runtime: str, spec: Spec, path: str, value: Any) -> Spec:
    """`spec` with `value` at `path`; holders that are missing are made, an index past the end appends."""
    steps: list[str | int] = []
    for name, indexes in _PART.findall(path):
        steps += [name, *(int(i) for i in re.findall(r"\d+", indexes))]
    result = copy.deepcopy(spec)
    holder: Any = result
    walked, number = "", 0
    for step, following in itertools.pairwise(steps):
        walked = f"{walked}[]" if isinstance(step, int) else f"{walked}.{step}".lstrip(".")
        number = step if isinstance(step, int) else number
        if isinstance(step, int):
            step = min(step, len(holder))
        if value is GONE and not _there(holder, step):
            return result
        if not _there(holder, step):
            _put(holder, step, [] if isinstance(following, int) else fresh_item(runtime, walked, number))
        holder = holder[step]
    last = steps[-1]
    if value is not GONE:
        _put(holder, last, copy.deepcopy(value))
    elif _there(holder, last):
        del holder[last]
    return result


def _there(holder: Any, step: str | int) -> bool:
    return step < len(holder) if isinstance(step, int) else step in holder


def _put(holder: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int) and step >= len(holder):
        holder.append(value)
    else:
        holder[step] = value


def merge_patch(old: Any, new: Any) -> Any:
    """The JSON merge patch (RFC 7386) that makes `new` of `old`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch = {key: None for key in old if key not in new}
    patch.update({key: merge_patch(old.get(key), value) for key, value in new.items() if old.get(key) != value})
    return patch
