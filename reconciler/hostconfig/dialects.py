"""Ids of the CRI plugin in the four versions of containerd's configuration files, and how they are migrated.

Pure functions on parsed documents. The rules are those of `config.go`, `plugins/cri/cri.go`,
`plugins/cri/images/plugin.go` and `plugins/cri/runtime/plugin.go` of containerd 2.0.11, 2.2.9 and 2.3.4.
"""

from __future__ import annotations

from typing import Any

from reconciler.hostconfig.version import Version

CRI_V1 = "cri"
"""Of version 1 files."""
CRI_V2 = "io.containerd.grpc.v1.cri"
"""Of version 2 files; from version 3 on only the streaming server is under it."""
CRI_RUNTIME = "io.containerd.cri.v1.runtime"
CRI_IMAGES = "io.containerd.cri.v1.images"

Table = dict[str, Any]

SERVER_KEYS = frozenset(
    {
        "disable_tcp_service",
        "stream_server_address",
        "stream_server_port",
        "stream_idle_timeout",
        "enable_tls_streaming",
        "x509_key_pair_streaming",
    }
)
"""What stays under the old id."""
_IMAGE_KEYS = (
    "registry",
    "image_decryption",
    "max_concurrent_downloads",
    "image_pull_progress_timeout",
    "image_pull_with_sync_fs",
    "stats_collect_period",
)
MOVED_WITH_RUNTIMES = frozenset({"snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"})
"""Keys of `containerd` that the migration moves to the images only where there are runtimes."""
_CORE_PLUGINS = {
    "cgroups": "io.containerd.monitor.v1.cgroups",
    "linux": "io.containerd.runtime.v1.linux",
    "scheduler": "io.containerd.gc.v1.scheduler",
    "bolt": "io.containerd.metadata.v1.bolt",
    "task": "io.containerd.runtime.v2.task",
    "opt": "io.containerd.internal.v1.opt",
    "restart": "io.containerd.internal.v1.restart",
    "tracing": "io.containerd.internal.v1.tracing",
    "otlp": "io.containerd.tracing.processor.v1.otlp",
    "aufs": "io.containerd.snapshotter.v1.aufs",
    "btrfs": "io.containerd.snapshotter.v1.btrfs",
    "devmapper": "io.containerd.snapshotter.v1.devmapper",
    "native": "io.containerd.snapshotter.v1.native",
    "overlayfs": "io.containerd.snapshotter.v1.overlayfs",
    "zfs": "io.containerd.snapshotter.v1.zfs",
    CRI_V1: CRI_V2,
}
_MOVED = {
    "io.containerd.monitor.v1.cgroups": "io.containerd.monitor.task.v1.cgroups",
    "io.containerd.internal.v1.restart": "io.containerd.monitor.container.v1.restart",
}


def table(parent: Table, key: str) -> Table:
    """`parent[key]` when it is a table, else an empty one."""
    found = parent.get(key)
    return found if isinstance(found, dict) else {}


def full_name(plugin: str) -> str:
    """The id that a name of version 1 stands for; one with a dot is an id already."""
    if "." in plugin:
        return plugin
    if plugin in _CORE_PLUGINS:
        return _CORE_PLUGINS[plugin]
    if plugin.endswith("-service"):
        return f"io.containerd.service.v1.{plugin}"
    if plugin in ("windows", "windows-lcow"):
        return f"io.containerd.snapshotter.v1.{plugin}"
    return f"io.containerd.grpc.v1.{plugin}"


def rename_v1(document: Table) -> Table:
    """A version 1 document with the ids of version 2."""
    out = dict(document)
    if "plugins" in out:
        out["plugins"] = {full_name(name): value for name, value in out["plugins"].items()}
    for key in ("disabled_plugins", "required_plugins"):
        if key in out:
            out[key] = [full_name(name) for name in out[key]]
    return out


def migrate_plugins(plugins: Table, version: Version) -> Table:
    """The `plugins` table of a version 2 document in version 3 ids; what is there under a new id already stays."""
    out = {_MOVED.get(name, name): value for name, value in plugins.items()}
    old = out.get(CRI_V2)
    if not isinstance(old, dict):
        return out
    out[CRI_IMAGES] = _images(table(out, CRI_IMAGES), old)
    out[CRI_RUNTIME] = _runtime(table(out, CRI_RUNTIME), old, version)
    out[CRI_V2] = {key: value for key, value in old.items() if key in SERVER_KEYS}
    return out


def _images(new: Table, old: Table) -> Table:
    out = dict(new)
    if "sandbox_image" in old:
        out["pinned_images"] = {**table(out, "pinned_images"), "sandbox": old["sandbox_image"]}
    out.update({key: old[key] for key in _IMAGE_KEYS if key in old})
    containerd = table(old, "containerd")
    if isinstance(containerd.get("runtimes"), dict):
        out.update({key: containerd[key] for key in MOVED_WITH_RUNTIMES if key in containerd})
    return out


def _runtime(new: Table, old: Table, version: Version) -> Table:
    moved = {"sandbox_image", "containerd", *_IMAGE_KEYS, *SERVER_KEYS}
    if version.renames_bin_dir:
        moved.add("cni")
    out = {**{key: value for key, value in old.items() if key not in moved}, **new}
    if version.renames_bin_dir and isinstance(old.get("cni"), dict):
        out["cni"] = _cni(table(new, "cni"), old["cni"])
    if isinstance(old.get("containerd"), dict):
        out["containerd"] = _containerd(table(new, "containerd"), old["containerd"])
    return out


def _cni(new: Table, old: Table) -> Table:
    out = {**{key: value for key, value in old.items() if key != "bin_dir"}, **new}
    if "bin_dir" in old:
        # The list that is there is looked at as one of strings, which a decoded one never is: the old key wins.
        out["bin_dirs"] = [old["bin_dir"]]
    return out


def _containerd(new: Table, old: Table) -> Table:
    out = {**{key: value for key, value in old.items() if key not in MOVED_WITH_RUNTIMES}, **new}
    runtimes = out.get("runtimes")
    if isinstance(runtimes, dict):
        out["runtimes"] = {name: _sandboxer(one) if isinstance(one, dict) else one for name, one in runtimes.items()}
    return out


def _sandboxer(runtime: Table) -> Table:
    if "sandbox_mode" not in runtime or "sandboxer" in runtime:
        return runtime
    out = {key: value for key, value in runtime.items() if key != "sandbox_mode"}
    return {**out, "sandboxer": runtime["sandbox_mode"]}


def migrate_servers(document: Table) -> Table:
    """A version 3 document with its `grpc`, `ttrpc`, `debug` and `metrics` as plugins of version 4."""
    grpc, ttrpc = table(document, "grpc"), table(document, "ttrpc")
    debug, metrics = table(document, "debug"), table(document, "metrics")
    sizes = {key: grpc[key] for key in ("max_recv_message_size", "max_send_message_size") if grpc.get(key)}
    made: Table = {}
    if debug.get("address"):
        made["io.containerd.server.v1.debug"] = _socket(debug, debug["address"])
    owner = {key: grpc[key] for key in ("uid", "gid") if grpc.get(key)}
    if grpc.get("address"):
        made["io.containerd.server.v1.grpc"] = {**_socket(grpc, grpc["address"]), **sizes}
    elif owner or sizes:
        made["io.containerd.server.v1.grpc"] = {**owner, **sizes}
    if grpc.get("tcp_address"):
        made["io.containerd.server.v1.grpc-tcp"] = {"address": grpc["tcp_address"], **_tls(grpc), **sizes}
    address = ttrpc.get("address") or (f"{grpc['address']}.ttrpc" if grpc.get("address") else "")
    inherited = grpc if not ttrpc.get("address") and grpc.get("address") else {}
    own = {key: ttrpc.get(key) or inherited.get(key, 0) for key in ("uid", "gid")}
    if address or any(own.values()):
        made["io.containerd.server.v1.ttrpc"] = {"address": address, **own}
    if metrics.get("grpc_histogram"):
        made["io.containerd.metrics.v1.grpc-prometheus"] = {"grpc_histogram": True}
    if metrics.get("address"):
        made["io.containerd.server.v1.metrics"] = {"address": metrics["address"]}
    out = {key: value for key, value in document.items() if key not in ("grpc", "ttrpc", "metrics")}
    if debug:
        out["debug"] = {key: value for key, value in debug.items() if key not in ("address", "uid", "gid")}
    if made:
        out["plugins"] = {**made, **table(document, "plugins")}
    return out


def _socket(section: Table, address: str) -> Table:
    return {"address": address, "uid": section.get("uid", 0), "gid": section.get("gid", 0)}


def _tls(grpc: Table) -> Table:
    pairs = {"tcp_tls_ca": "tls_ca", "tcp_tls_cert": "tls_cert", "tcp_tls_key": "tls_key"}
    pairs["tcp_tls_common_name"] = "tls_common_name"
    return {new: grpc[old] for old, new in pairs.items() if grpc.get(old)}
