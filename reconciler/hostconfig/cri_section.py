"""The CRI plugin's section of a merged 1.x configuration: where it is, what it serves, whether it is valid.

The checks are those of `ValidatePluginConfig` and of the plugin's start in 1.6 and 1.7.
"""

from __future__ import annotations

from typing import Any

from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Finding, Findings
from reconciler.hostconfig.version import Version

CRI_V1 = "cri"
CRI_V2 = "io.containerd.grpc.v1.cri"
BUILT_IN_SNAPSHOTTERS = frozenset({"overlayfs", "native", "btrfs", "aufs", "devmapper", "zfs"})
RUNC = "runc"


def plugin_id(effective: Effective) -> str:
    """The id of the CRI plugin in the dialect of the files."""
    return CRI_V1 if effective.version == 1 and effective.exists else CRI_V2


def section(effective: Effective) -> dict[str, Any]:
    found = effective.document.get("plugins", {}).get(plugin_id(effective), {})
    return found if isinstance(found, dict) else {}


def _table(parent: dict[str, Any], key: str) -> dict[str, Any]:
    found = parent.get(key, {})
    return found if isinstance(found, dict) else {}


def written_runtimes(effective: Effective) -> dict[str, dict[str, Any]]:
    """The runtimes table as written; empty means that the built-in `runc` is served."""
    found = _table(_table(section(effective), "containerd"), "runtimes")
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def served_runtimes(effective: Effective) -> dict[str, dict[str, Any]]:
    """What CRI would name, the built-in `runc` and the two deprecated entries included."""
    containerd = _table(section(effective), "containerd")
    served = dict(written_runtimes(effective)) or {RUNC: {"runtime_type": "io.containerd.runc.v2"}}
    for key, name in (("untrusted_workload_runtime", "untrusted"), ("default_runtime", "default")):
        old = _table(containerd, key)
        if old.get("runtime_type"):
            served[name] = old
    return served


def default_runtime(effective: Effective) -> str:
    containerd = _table(section(effective), "containerd")
    if _table(containerd, "default_runtime").get("runtime_type"):
        return "default"
    return str(containerd.get("default_runtime_name") or RUNC)


def systemd_cgroup(effective: Effective) -> bool:
    """The cgroup setting of the default runtime, which handlers of type runc must share."""
    default = served_runtimes(effective).get(default_runtime(effective), {})
    return bool(_table(default, "options").get("SystemdCgroup"))


def examine(effective: Effective, host: HostRoot, version: Version) -> Findings:
    """Would the daemon start, would CRI serve, and what."""
    starts = _start_problems(effective, version)
    serving = [] if starts or effective.fatal else _serve_problems(effective, host)
    loads = not effective.fatal and not starts
    serves = loads and not serving
    fatal = [*effective.fatal, *starts, *serving]
    rest = [finding for finding in effective.findings if finding not in effective.fatal]
    return Findings(
        loads=loads,
        serves=serves,
        handlers=tuple(sorted(served_runtimes(effective))) if serves else (),
        default_runtime=default_runtime(effective) if serves else "",
        findings=(*fatal, *rest, *(_mismatch(effective, version) if loads else ())),
    )


def _mismatch(effective: Effective, version: Version) -> list[Finding]:
    if effective.version <= 2 or version.checks_config_version:
        return []
    text = f"`version = {effective.version}` is misread by containerd {version}: CRI runs with its defaults"
    return [Finding(Code.DIALECT_MISMATCH, effective.main, text)]


def _start_problems(effective: Effective, version: Version) -> list[Finding]:
    main = effective.main
    found = [Finding(Code.INVALID_TOML, main, text) for text in _shape_problems(effective)]
    if effective.version > 2 and version.checks_config_version:
        text = f"`version = {effective.version}` is not known to containerd {version}; it would not start"
        found.append(Finding(Code.UNSUPPORTED_VERSION, main, text))
    for name, entry in effective.document.get("proxy_plugins", {}).items():
        if not entry.get("type"):
            text = f"proxy plugin {name} has no `type`: containerd would panic"
            found.append(Finding(Code.INCOMPLETE_PROXY_PLUGIN, main, text))
    if effective.version >= 2:
        for key in ("disabled_plugins", "required_plugins", "plugins"):
            for name in effective.document.get(key, ()):
                if len(name.split(".")) < 4:
                    code = Code.CRI_DISABLED if key == "disabled_plugins" and name == CRI_V1 else Code.DIALECT_MISMATCH
                    text = f"`{name}` in `{key}` is not a plugin id of version {effective.version} files"
                    found.append(Finding(code, main, text))
    return found


def _shape_problems(effective: Effective) -> list[str]:
    """Places of the CRI section that must be tables and are not (an array of tables, say)."""
    here, path = section(effective), f"plugins.{plugin_id(effective)}"
    for key in ("containerd", "runtimes"):
        path, value = f"{path}.{key}", here.get(key, {})
        if not isinstance(value, dict):
            return [f"`{path}` must be a table"]
        here = value
    return [f"`{path}.{name}` must be a table" for name, value in here.items() if not isinstance(value, dict)]


def _serve_problems(effective: Effective, host: HostRoot) -> list[Finding]:
    where = effective.origin.get(plugin_id(effective), effective.main)
    cri = section(effective)
    found = []
    if plugin_id(effective) in effective.document.get("disabled_plugins", []):
        found.append(Finding(Code.CRI_DISABLED, effective.main, "`disabled_plugins` names the CRI plugin"))
    served, default = served_runtimes(effective), default_runtime(effective)
    if default not in served:
        text = f"the default runtime {default!r} is not among the runtimes {sorted(served)}"
        found.append(Finding(Code.DEFAULT_RUNTIME_MISSING, where, text))
    registry = _table(cri, "registry")
    if registry.get("config_path") and (registry.get("mirrors") or _has_tls(registry)):
        found.append(Finding(Code.REGISTRY_CONFLICT, where, "registry `mirrors` or tls beside `config_path`"))
    for name, table in served.items():
        spec = table.get("base_runtime_spec")
        if isinstance(spec, str) and spec and not host.exists(spec):
            found.append(Finding(Code.CRI_INVALID, where, f"runtime {name}: base_runtime_spec {spec} is missing"))
    snapshotter = str(_table(cri, "containerd").get("snapshotter") or "overlayfs")
    if snapshotter not in BUILT_IN_SNAPSHOTTERS and snapshotter not in effective.document.get("proxy_plugins", {}):
        found.append(Finding(Code.CRI_INVALID, where, f"the default snapshotter {snapshotter!r} has no plugin"))
    if cri.get("systemd_cgroup") is True:
        found.append(Finding(Code.CRI_INVALID, where, "`systemd_cgroup = true` is for runtimes of version 1"))
    return found


def _has_tls(registry: dict[str, Any]) -> bool:
    return any(isinstance(entry, dict) and entry.get("tls") for entry in _table(registry, "configs").values())
