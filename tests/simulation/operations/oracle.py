"""What good values must come to, said without the product: a defect that a fresh cluster has, too, is seen here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.api import names
from tests.simulation.operations.walk import Checkpoint


def selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """As `k8s.io/apimachinery/pkg/labels` has it."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_holds(term, labels) for term in selector.get("matchExpressions", ()))


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    there, among = term["key"] in labels, labels.get(term["key"]) in term.get("values", ())
    return {"Exists": there, "DoesNotExist": not there, "In": there and among, "NotIn": not among}[term["operator"]]


def wrong(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """One line for each thing that is not as good values should have it; states that a person holds are left out."""
    return [f"{line}, after {point.step}" for point in checkpoints if not point.model.held for line in _at(point)]


def _at(point: Checkpoint) -> Iterator[str]:
    for where, text in point.found.items():
        if where.startswith("NodeRuntime "):
            for condition in json.loads(text)["status"]["conditions"]:
                if condition["type"] in ("Degraded", "Stuck") and condition["status"] != "False":
                    yield f"{where}: {condition}"
    for node, own in point.model.nodes.items():
        labels = {"kubernetes.io/hostname": node, **own}
        here = [r for r, spec in point.model.runtimes.items() if selected(spec.get("nodeSelector", {}), labels)]
        found = json.loads(point.found[f"{node} labels"])
        ready = [r for r in point.model.runtimes if found.get(names.stage_label(r)) == "ready"]
        if ready != here:
            yield f"{node}: ready are {ready}, selected are {here}"
        handlers = {h["name"] for r in here for h in point.model.runtimes[r].get("handlers", ())}
        served = json.loads(point.found[f"{node} containerd"])
        if served != {"handlers": sorted(handlers | {"runc"}), "runs on what is on the disk": True, "serving": True}:
            yield f"{node}: containerd {served}, wanted are {sorted(handlers)}"
    classes = {where.split()[1] for where in point.found if where.startswith("RuntimeClass ")}
    asked = (h for spec in point.model.runtimes.values() for h in spec.get("handlers", ()))
    if classes != {h["runtimeClass"]["name"] for h in asked if "runtimeClass" in h}:
        yield f"RuntimeClasses are {sorted(classes)}"
