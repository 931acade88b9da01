"""Our tables as TOML text. Values by tomlkit, headers with every key quoted that needs it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import tomlkit

from reconciler.api.noderuntime import Handler, Snapshotter
from reconciler.hostconfig.cri_section import RUNC_TYPE

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def handler_table(handler: Handler, *, systemd_cgroup: bool) -> dict[str, Any]:
    """The handler's table in containerd's keys; type runc takes the cgroup setting of the default runtime."""
    table: dict[str, Any] = {"runtime_type": handler.runtime_type}
    if handler.runtime_path is not None:
        table["runtime_path"] = handler.runtime_path
    if handler.snapshotter is not None:
        table["snapshotter"] = handler.snapshotter
    if handler.pod_annotations:
        table["pod_annotations"] = list(handler.pod_annotations)
    if handler.privileged_without_host_devices is not None:
        table["privileged_without_host_devices"] = handler.privileged_without_host_devices
    table.update(handler.extra)
    options = dict(handler.options)
    if handler.runtime_type == RUNC_TYPE and systemd_cgroup:
        options.setdefault("SystemdCgroup", True)
    if options:
        table["options"] = options
    return table


def proxy_table(snapshotter: Snapshotter) -> dict[str, Any]:
    """A complete entry of `proxy_plugins`: entries are replaced whole, and one without `type` is a panic."""
    return {"type": "snapshot", "address": snapshotter.address}


def table_text(path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """`[path]` with its plain values, then its sub-tables, each line ended by LF."""
    lines = ["[" + ".".join(_key(part) for part in path) + "]"]
    nested = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            nested.append(table_text((*path, key), value))
        else:
            lines.append(f"  {_key(key)} = {tomlkit.item(value).as_string()}")
    return "\n".join(lines) + "\n" + "".join(nested)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
