"""What two clusters are compared by: everything that can be seen of them, without what must differ.

Left out or replaced, and why:
* UIDs of NodeRuntimes and pods, resourceVersions, all times, ids of boots, machines and containers: another object, at
  another moment.
* `attempt` of an agent's answer: goes up with each answer for one revision, so that an old one never counts (design
  section 12). `pod` of a state: the UID of a pod that is gone.
* What an agent's report still says of pods that are gone and of a runtime that the node does not carry: it goes with
  the next report, and is not worth one.
* `revision` of a ControllerRevision: the generation of the spec when it was made.
* Generations: whether the status speaks of the present one is compared.
* The order of our blocks in a configuration: that in which the runtimes came to the node.
* Startup taints, but on nodes where a NodeRuntime that names them is ready: taken off once, nobody puts them back.
* Files of a payload whose phases do not undo each other (`Model.vendor`): the vendor's.
* Events: they tell what was, not what is.
"""

from __future__ import annotations

import base64
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reconciler.api import names
from reconciler.cri.api import ContainerState
from reconciler.sim import config, judge, kinds
from reconciler.sim.cluster import Cluster
from reconciler.sim.kinds import Object
from reconciler.sim.node import SimNode
from tests.simulation.operations.model import STARTING, Model

Snapshot = dict[str, str]
"""Where → what stands there, as text."""
MAIN = config.MAIN.lstrip("/")
_BLOCK = re.compile(r"# runtime-reconciler: begin (\S+)\n.*?# runtime-reconciler: end \1\n", re.DOTALL)
_TIMES = frozenset(
    (
        *("creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastHeartbeatTime"),
        *("since", "deadline", "startTime", "startedAt", "finishedAt"),
    )
)


def take(cluster: Cluster, model: Model) -> Snapshot:
    """Everything of `cluster` that counts. Blocks on the disk."""
    found = dict(_objects(cluster))
    for name, node in sorted(cluster.nodes.items()):
        found.update({f"{name} {what}": text for what, text in _node(cluster, name, model)})
        found.update({f"{name} {what}": text for what, text in _machine(node, model)})
    return {where: _neutral(cluster, text) for where, text in found.items()}


def nodes_only(snapshot: Snapshot) -> Snapshot:
    """The part of it that is on nodes, not in NodeRuntimes and what belongs to them."""
    return {where: text for where, text in snapshot.items() if where.startswith("node-")}


def difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """What is not as in `wanted`, for a person to read; empty when all is."""
    lines = []
    for where in sorted(set(found) | set(wanted)):
        one, other = wanted.get(where), found.get(where)
        if one == other:
            continue
        lines.append(f"{where}:")
        changes = difflib.unified_diff((one or "").splitlines(), (other or "").splitlines(), lineterm="", n=1)
        lines += [f"  {line}" for line in [*changes][2:]]
    return lines


def _objects(cluster: Cluster) -> Iterator[tuple[str, str]]:
    store = cluster.server.store
    for (_, name), record in store.all(kinds.NODERUNTIMES):
        status = dict(record.object.get("status") or {})
        generation = record.object["metadata"]["generation"]
        current = _generations(status)
        yield f"NodeRuntime {name}", _text({"status": _without_generations(status), "current": current == {generation}})
        yield f"finalizers of NodeRuntime {name}", _text(record.object["metadata"].get("finalizers"))
    for kind in (kinds.RUNTIMECLASSES, kinds.CONTROLLERREVISIONS):
        for (_, name), record in store.all(kind):
            yield f"{kind.kind} {name}", _text(_without(record.object, "revision"))
    for (_, name), record in store.all(kinds.PODS):
        if (record.object["metadata"].get("labels") or {}).get(names.COMPONENT_LABEL) == names.COMPONENT_PHASE:
            yield f"phase pod {name}", _text(record.object.get("status"))


def _generations(status: Object) -> set[Any]:
    conditions = status.get("conditions") or ()
    return {status.get("observedGeneration"), *(c.get("observedGeneration") for c in conditions)}


def _without_generations(status: Object) -> Object:
    conditions = [_without(c, "observedGeneration") for c in status.get("conditions") or ()]
    return {**_without(status, "observedGeneration"), "conditions": conditions}


def _node(cluster: Cluster, name: str, model: Model) -> Iterator[tuple[str, str]]:
    record = cluster.server.store.get(kinds.NODES, ("", name))
    if record is None:
        return
    meta = record.object["metadata"]
    yield "labels", _text(meta.get("labels"))
    for key, value in sorted((meta.get("annotations") or {}).items()):
        yield f"annotation {key}", _text(_annotation(cluster, meta, key, value))
    yield "taints", _text(_taints(record.object, model))
    yield "conditions", _text(record.object["status"].get("conditions"))


def _annotation(cluster: Cluster, meta: Object, key: str, value: str) -> Any:
    if key == names.REPORT_ANNOTATION:
        report = json.loads(value)
        carried = (r for r in report.get("work", {}) if names.state_annotation(r) in meta["annotations"])
        report["work"] = {r: _without(report["work"][r], "attempt") for r in carried}
        there = {record.object["metadata"]["uid"] for _, record in cluster.server.store.all(kinds.PODS)}
        report["ended"] = sorted(there & set(report.get("ended", ())))
        return _without(report, "boot")
    if key.startswith(names.STATE_ANNOTATION_PREFIX):
        return _without(json.loads(value), "pod", "machine")
    return value


def _taints(node: Object, model: Model) -> list[Any]:
    """Those of others, and startup taints of what is ready here, of which there should be none."""
    labels = node["metadata"].get("labels") or {}
    named = {
        (taint["key"], taint["effect"])
        for runtime, spec in model.runtimes.items()
        for taint in spec.get("startupTaints", ())
        if labels.get(names.stage_label(runtime)) == "ready"
    }
    taints = (node.get("spec") or {}).get("taints") or ()
    return [t for t in taints if not t["key"].startswith(STARTING) or (t["key"], t["effect"]) in named]


def _machine(node: SimNode, model: Model) -> Iterator[tuple[str, str]]:
    for path in judge.disk(node.root):
        if not any(path.startswith(f"opt/{runtime}/") for runtime in model.vendor):
            yield f"/{path}", _file(node.root / path)
    loaded = config.load(node.root)
    yield (
        "containerd",
        _text(
            {
                "serving": node.daemon.serving,
                "handlers": node.daemon.loaded.handlers,
                "runs on what is on the disk": node.daemon.loaded == loaded,
            }
        ),
    )
    running = (p.pod_uid for p in node.runtime.processes.values() if p.state is not ContainerState.EXITED)
    yield "processes", _text(sorted(running))


def _file(path: Path) -> str:
    text = path.read_text()
    if path.name == "last-good.json":
        kept = json.loads(text)
        return _text({**kept, "data": _sorted_blocks(base64.b64decode(kept["data"]).decode())})
    return _sorted_blocks(text) if str(path).endswith(MAIN) else text


def _sorted_blocks(text: str) -> str:
    blocks = sorted(match.group(0) for match in _BLOCK.finditer(text))
    return _BLOCK.sub("", text) + "".join(blocks)


def _text(value: Any) -> str:
    return json.dumps(_timeless(value), indent=1, sort_keys=True)


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in _TIMES | {"resourceVersion", "containerID"}}
    return [_timeless(v) for v in value] if isinstance(value, list | tuple) else value


def _without(value: Object, *keys: str) -> Object:
    return {key: inner for key, inner in value.items() if key not in keys}


_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _neutral(cluster: Cluster, text: str) -> str:
    """UIDs of NodeRuntimes by the name of the object, all others as one."""
    for (_, name), record in cluster.server.store.all(kinds.NODERUNTIMES):
        text = text.replace(record.object["metadata"]["uid"], f"<UID of {name}>")
    return _UID.sub("<UID of what is gone>", text)
