"""The state that an install changes and an uninstall must give back, and what is left of it."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import api as names
from tests.cluster.api import Api
from tests.cluster.node import Node

_FOLDERS = ("etc/containerd", "opt", "var/lib/runtime-reconciler", "etc/systemd/system", "usr/local")
_LOCK = "lock"


@dataclass(frozen=True)
class World:
    """Node → path → mode, owner and hash; and the names of what lives in the API."""

    files: dict[str, dict[str, str]]
    objects: frozenset[str]
    marks: dict[str, frozenset[str]]


def look(api: Api, nodes: list[Node]) -> World:
    """The world as it is now."""
    return World(
        files={node.name: _files(node) for node in nodes},
        objects=frozenset(_objects(api)),
        marks={item["metadata"]["name"]: frozenset(_marks(item)) for item in api.items(names.NODES)},
    )


def ready_since(api: Api, node: Node) -> str:
    """Since when the API server holds the node to be Ready (RFC 3339); empty when it does not."""
    item = api.find(f"{names.NODES}/{node.name}") or {}
    conditions = item.get("status", {}).get("conditions", [])
    return next((c["lastTransitionTime"] for c in conditions if c["type"] == "Ready" and c["status"] == "True"), "")


def differences(before: World, after: World) -> list[str]:
    """What is in one world and not in the other, in words; empty when nothing is left behind and nothing lost."""
    found = [f"left in the API: {item}" for item in sorted(after.objects - before.objects)]
    found += [f"gone from the API: {item}" for item in sorted(before.objects - after.objects)]
    for node in sorted(after.marks):
        old, new = before.marks.get(node, frozenset()), after.marks[node]
        found += [f"{node}: left on the Node: {mark}" for mark in sorted(new - old)]
        found += [f"{node}: gone from the Node: {mark}" for mark in sorted(old - new)]
    for node in sorted(after.files):
        found += [f"{node}: {text}" for text in _file_differences(before.files.get(node, {}), after.files[node])]
    return found


def _file_differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    found = [f"file left: {path}" for path in sorted(after.keys() - before.keys())]
    found += [f"file lost: {path}" for path in sorted(before.keys() - after.keys())]
    return found + [
        f"file changed: {path}" for path in sorted(before.keys() & after.keys()) if before[path] != after[path]
    ]


def _files(node: Node) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in _FOLDERS:
        for parent, _, files in os.walk(node.root / folder):
            found["/" + str(Path(parent).relative_to(node.root)) + "/"] = "folder"
            for name in files:
                path = Path(parent) / name
                found["/" + str(path.relative_to(node.root))] = _fingerprint(path)
    return {path: value for path, value in found.items() if not _allowed(path)}


def _allowed(path: str) -> bool:
    """The lock of the host's transactions is never deleted (design section 6.7), nor is its folder."""
    inside = path.removeprefix("/var/lib/runtime-reconciler/")
    return inside != path and (inside in ("", _LOCK) or inside.endswith("/"))


def _fingerprint(path: Path) -> str:
    status = path.lstat()
    content = os.readlink(path).encode() if stat.S_ISLNK(status.st_mode) else b""
    if stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    return f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {hashlib.sha256(content).hexdigest()}"


def _objects(api: Api) -> list[str]:
    found = [f"NodeRuntime {item['metadata']['name']}" for item in api.items(names.NODE_RUNTIMES)]
    found += [f"RuntimeClass {item['metadata']['name']}" for item in api.items(names.RUNTIME_CLASSES)]
    revisions = api.items(names.REVISIONS)
    ours = [item for item in revisions if not item["metadata"].get("ownerReferences")]
    found += [f"ControllerRevision {item['metadata']['name']}" for item in ours]
    phase_pods = api.items(f"{names.OUR_PODS}?labelSelector=runtime-reconciler.io/component=phase")
    return found + [f"Pod {item['metadata']['name']}" for item in phase_pods]


def _marks(node: dict[str, object]) -> list[str]:
    metadata = node["metadata"]
    assert isinstance(metadata, dict)
    marks = [f"label {key}={value}" for key, value in (metadata.get("labels") or {}).items()]
    ours = {key: value for key, value in (metadata.get("annotations") or {}).items() if "runtime-reconciler" in key}
    marks += [f"annotation {key}" for key in ours if key != names.AGENT_REPORT]  # the agent's, not an install's
    return marks + [f"finalizer {item}" for item in metadata.get("finalizers") or []]
