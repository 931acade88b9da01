"""What a containerd 1.x would make of the files below a node's root.

Written apart from `reconciler.hostconfig` on purpose: the engine that edits must not be its own judge.
Only what the simulation needs of `containerd-1.6/services/server/config`: imports breadth first, whole
sections replaced by later files, and the checks of the CRI plugin that make it refuse to serve.
"""

from __future__ import annotations

import glob
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAIN = "/etc/containerd/config.toml"
CRI = "io.containerd.grpc.v1.cri"
CRI_V1 = "cri"
BUILT_IN = {"runc": {"runtime_type": "io.containerd.runc.v2"}}
SNAPSHOTTERS = frozenset({"overlayfs", "native", "btrfs", "zfs", "devmapper", "aufs"})


DISABLED = "unknown service runtime.v1.RuntimeService"
"""All that is said of a plugin that was not even tried; of one that failed, containerd says why."""


@dataclass(frozen=True)
class Loaded:
    """`error` is set when the daemon would exit; `cri_error` when it would run without its CRI plugin."""

    handlers: tuple[str, ...] = ()
    default_runtime: str = "runc"
    error: str = ""
    cri_error: str = ""


def load(root: Path) -> Loaded:
    """Read the configuration of the node whose `/` is `root`. Never raises for what the files hold."""
    try:
        merged = _merged(root)
    except (OSError, ValueError) as error:
        return Loaded(error=str(error))
    version = merged.get("version", 1)
    plugin = CRI if version >= 2 or not _main(root).exists() else CRI_V1
    cri = merged.get("plugins", {}).get(plugin, {})
    if plugin in merged.get("disabled_plugins", ()):
        return Loaded(cri_error=DISABLED)
    containerd = cri.get("containerd", {})
    handlers = containerd.get("runtimes") or BUILT_IN
    default = containerd.get("default_runtime_name") or "runc"
    problem = _cri_problem(handlers, default, merged.get("proxy_plugins", {}), containerd)
    return Loaded(handlers=tuple(sorted(handlers)), default_runtime=default, cri_error=problem)


def _cri_problem(handlers: dict[str, Any], default: str, proxies: dict[str, Any], containerd: dict[str, Any]) -> str:
    if default not in handlers:
        why = f'for `containerd` `default_runtime_name = "{default}"`'
        return f"invalid plugin config: no corresponding runtime configured in `containerd.runtimes` {why}"
    snapshotter = containerd.get("snapshotter") or "overlayfs"
    if snapshotter not in SNAPSHOTTERS and snapshotter not in proxies:
        return f'failed to create CRI service: failed to find snapshotter "{snapshotter}"'
    return ""


def _main(root: Path) -> Path:
    return root / MAIN.lstrip("/")


def _merged(root: Path) -> dict[str, Any]:
    if not _main(root).exists():
        return {}
    merged: dict[str, Any] = {}
    queue, seen = [MAIN], {MAIN}
    while queue:
        path = queue.pop(0)
        document = tomllib.loads((root / path.lstrip("/")).read_bytes().decode())
        _merge(merged, document)
        for found in _imports(root, path, document):
            if found not in seen:
                seen.add(found)
                queue.append(found)
    for name, proxy in merged.get("proxy_plugins", {}).items():
        if not proxy.get("type"):
            raise ValueError(f"panic: plugin: no type: proxy plugin {name}")
    return merged


def _imports(root: Path, path: str, document: dict[str, Any]) -> list[str]:
    found: list[str] = []
    for entry in document.get("imports", ()):
        if not isinstance(entry, str) or not entry:
            raise ValueError(f"imports of {path}: {entry!r} is not a path")
        absolute = entry if entry.startswith("/") else str(Path(path).parent / entry)
        if "*" in absolute:
            matches = sorted(glob.glob(str(root) + absolute, include_hidden=True))
            found += ["/" + str(Path(match).relative_to(root)) for match in matches]
        else:
            found.append(absolute)
    return found


def _merge(into: dict[str, Any], document: dict[str, Any]) -> None:
    for key, value in document.items():
        if key in ("imports", "disabled_plugins", "required_plugins"):
            into[key] = [*into.get(key, ()), *value]
        elif key in ("plugins", "proxy_plugins", "stream_processors", "timeouts"):
            into[key] = {**into.get(key, {}), **value}
        elif value:
            into[key] = value
