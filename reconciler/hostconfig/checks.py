"""Would the daemon start, would CRI serve, and what: `ValidatePluginConfig` and the plugins' starts as rules.

Each rule is a function of the merged configuration that names what it finds, with what to do about it.
A value with a token that is replaced at the start (microk8s) is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reconciler.hostconfig import cri_section
from reconciler.hostconfig.dialects import CRI_IMAGES, CRI_RUNTIME, CRI_V1, CRI_V2, SERVER_KEYS, table
from reconciler.hostconfig.distribution import TOKEN
from reconciler.hostconfig.document import line_of
from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Finding, Findings

BUILT_IN_SNAPSHOTTERS = frozenset({"overlayfs", "native", "btrfs", "aufs", "devmapper", "zfs", "blockfile", "erofs"})
_RUNTIME_KEYS: dict[str, type | tuple[type, ...]] = {
    "runtime_type": str,
    "runtime_path": str,
    "base_runtime_spec": str,
    "cni_conf_dir": str,
    "privileged_without_host_devices": bool,
    "pod_annotations": list,
    "container_annotations": list,
    "options": dict,
}
"""Keys of a runtime's table that every supported containerd knows; a value of another type stops the daemon."""


def examine(effective: Effective, host: HostRoot) -> Findings:
    """What containerd would make of it."""
    starts = [] if effective.fatal else list(_start_problems(effective))
    loads = not effective.fatal and not starts
    serving = list(_serve_problems(effective, host)) if loads else []
    serves = loads and not serving
    rest = [finding for finding in effective.findings if finding not in effective.fatal]
    return Findings(
        loads=loads,
        serves=serves,
        handlers=tuple(sorted(cri_section.served_runtimes(effective))) if loads and _has_runtimes(effective) else (),
        default_runtime=cri_section.default_runtime(effective) if serves else "",
        findings=(*effective.fatal, *starts, *serving, *rest, *(_not_in_force(effective) if loads else ())),
    )


def _finding(effective: Effective, code: Code, path: str, key: str, text: str, *, below: str = "") -> Finding:
    """With the line of `path` that first names `key` (below `below`)."""
    data = next((file.data for file in effective.files if file.path == path), b"")
    return Finding(code, path, text, line_of(data, below, key))


def _has_runtimes(effective: Effective) -> bool:
    """The plugin that holds them is there: on 2.x it is another one than CRI's service."""
    return cri_section.runtime_id(effective) not in effective.merged.get("disabled_plugins", [])


def _start_problems(effective: Effective) -> Iterator[Finding]:
    yield from _bad_types(effective)
    yield from _version(effective)
    yield from _plugin_names(effective)
    for name, entry in effective.document.get("proxy_plugins", {}).items():
        if not entry.get("type"):
            text = f'proxy plugin {name} has no `type`: containerd would panic; add `type = "snapshot"`'
            where = next((file.path for file in effective.files if name in file.document.get("proxy_plugins", {})), "")
            yield _finding(
                effective, Code.INCOMPLETE_PROXY_PLUGIN, where or effective.main, name, text, below="proxy_plugins"
            )


def _bad_types(effective: Effective) -> Iterator[Finding]:
    """Places of the CRI section that must be tables and are not (an array of tables, say), and keys of runtimes."""
    where = _where(effective)
    path, here = f"plugins.{cri_section.runtime_id(effective)}", cri_section.runtime_section(effective)
    for key in ("containerd", "runtimes"):
        path, value = f"{path}.{key}", here.get(key, {})
        if not isinstance(value, dict):
            yield _finding(effective, Code.INVALID_TOML, where, key, f"`{path}` must be a table")
            return
        here = value
    for name, value in here.items():
        if not isinstance(value, dict):
            text = f"`{path}.{name}` must be a table, not a list of tables or a value"
            yield _finding(effective, Code.INVALID_TOML, where, name, text, below="runtimes")
            continue
        for key, kind in _RUNTIME_KEYS.items():
            if key in value and not isinstance(value[key], kind):
                text = f"`{path}.{name}.{key}` has the wrong type: containerd does not start"
                yield _finding(effective, Code.INVALID_TOML, where, key, text)


def _version(effective: Effective) -> Iterator[Finding]:
    containerd = effective.containerd
    if effective.version > containerd.config_version_max and containerd.checks_config_version:
        text = (
            f"`version = {effective.version}` is not known to containerd {containerd}, "
            f"which knows up to {containerd.config_version_max}; it would not start"
        )
        yield _finding(effective, Code.UNSUPPORTED_VERSION, effective.main, "version", text)


def _plugin_names(effective: Effective) -> Iterator[Finding]:
    one = effective.containerd.one
    if one and effective.version < 2:
        return
    for key in ("disabled_plugins", "required_plugins", "plugins") if one else ("disabled_plugins", "required_plugins"):
        for name in effective.merged.get(key, ()):
            if len(name.split(".")) < 4 if one else "." not in name:
                code = Code.CRI_DISABLED if key == "disabled_plugins" and name == CRI_V1 else Code.DIALECT_MISMATCH
                text = f"`{name}` in `{key}` is not a plugin id of version {effective.version} files"
                yield _finding(effective, code, effective.main, key, text)


def _serve_problems(effective: Effective, host: HostRoot) -> Iterator[Finding]:
    where = _where(effective)
    needed = {cri_section.runtime_id(effective)} if effective.containerd.one else {CRI_V2, CRI_RUNTIME, CRI_IMAGES}
    if needed & set(effective.merged.get("disabled_plugins", [])):
        text = "`disabled_plugins` names the CRI plugin: take it out of the list"
        yield _finding(effective, Code.CRI_DISABLED, effective.main, "disabled_plugins", text)
    served, default = cri_section.served_runtimes(effective), cri_section.default_runtime(effective)
    if default not in served and TOKEN not in default:
        text = (
            f"the default runtime {default!r} is not among the runtimes {sorted(served)}: "
            "name one of them as `default_runtime_name`"
        )
        yield _finding(effective, Code.DEFAULT_RUNTIME_MISSING, where, "default_runtime_name", text)
    for name, runtime in served.items():
        spec = runtime.get("base_runtime_spec")
        if isinstance(spec, str) and spec and TOKEN not in spec and not host.exists(spec):
            text = f"runtime {name}: base_runtime_spec {spec} is missing"
            yield _finding(effective, Code.CRI_INVALID, where, spec, text)
    snapshotter = cri_section.default_snapshotter(effective)
    known = snapshotter in BUILT_IN_SNAPSHOTTERS or TOKEN in snapshotter
    if not known and snapshotter not in effective.document.get("proxy_plugins", {}):
        text = (
            f"the default snapshotter {snapshotter!r} has no plugin: add `proxy_plugins.{snapshotter}` or name another"
        )
        yield _finding(effective, Code.CRI_INVALID, where, "snapshotter", text)
    yield from _registry(effective)
    if effective.containerd.one and cri_section.runtime_section(effective).get("systemd_cgroup") is True:
        text = "`systemd_cgroup = true` is for runtimes of version 1: use `SystemdCgroup` in the runtime's options"
        yield _finding(effective, Code.CRI_INVALID, where, "systemd_cgroup", text)


def _registry(effective: Effective) -> Iterator[Finding]:
    registry = table(cri_section.images_section(effective), "registry")
    if not registry.get("config_path"):
        return
    where = effective.origin.get(cri_section.images_id(effective), _where(effective))
    if registry.get("mirrors"):
        text = "registry `mirrors` beside `config_path`: keep one of them"
        yield _finding(effective, Code.REGISTRY_CONFLICT, where, "mirrors", text)
    configs = table(registry, "configs").values()
    if effective.containerd.one and any(isinstance(entry, dict) and entry.get("tls") for entry in configs):
        text = "registry `configs.…tls` beside `config_path`: keep one of them"
        yield _finding(effective, Code.REGISTRY_CONFLICT, where, "tls", text)


def _not_in_force(effective: Effective) -> Iterator[Finding]:
    """Settings of files that this containerd drops without a word (facts about ids and versions)."""
    if effective.containerd.one:
        if effective.version > 2:
            text = f"`version = {effective.version}` is misread by containerd {effective.containerd}: CRI has defaults"
            yield _finding(effective, Code.DIALECT_MISMATCH, effective.main, "version", text)
        return
    dropped = [key for key in cri_section.plugin(effective, CRI_V2) if key not in SERVER_KEYS]
    if dropped:
        where = effective.origin.get(CRI_V2, effective.main)
        text = (
            f"settings under {CRI_V2} are not read in version {effective.version} files "
            f"({', '.join(sorted(dropped))}): move them under {CRI_RUNTIME} and {CRI_IMAGES}"
        )
        yield _finding(effective, Code.DIALECT_MISMATCH, where, CRI_V2, text)
    served = cri_section.served_runtimes(effective)
    for file in effective.files:
        for name in sorted(_named(file.document) - set(served)):
            text = f"runtime {name} of {file.path} is not in force: its plugin id is not the one that is read here"
            yield _finding(effective, Code.DIALECT_MISMATCH, file.path, name, text, below="runtimes")


def _named(document: dict[str, Any]) -> set[str]:
    plugins = table(document, "plugins")
    found: set[str] = set()
    for name in (CRI_V1, CRI_V2, CRI_RUNTIME):
        found |= table(table(table(plugins, name), "containerd"), "runtimes").keys()
    return found


def _where(effective: Effective) -> str:
    """The file to name for a fault of the CRI settings."""
    for name in (cri_section.runtime_id(effective), CRI_V2, CRI_V1):
        if name in effective.origin:
            return effective.origin[name]
    return effective.main
