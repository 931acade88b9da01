"""Which bytes of which files an apply or a remove would leave: pure, on a snapshot of the files.

Rules of design 6.3 to 6.6 for containerd 1.x: the blocks go into the file whose CRI section wins (a
drop-in would replace the whole section), `runc` is kept, and the predicted difference is exactly ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.noderuntime import RevisionData, WrittenBy
from reconciler.hostconfig import blocks, cri_section, render
from reconciler.hostconfig.effective import Effective, load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, FileChange, Finding, Findings, Refused
from reconciler.hostconfig.version import Version


@dataclass(frozen=True)
class FilePlan:
    """One file to write: `before` None means it is not there, `after` None that it goes."""

    path: str
    """The host's, links followed: the file itself."""
    before: bytes | None
    after: bytes | None

    def change(self) -> FileChange:
        action = "created" if self.before is None else "deleted" if self.after is None else "edited"
        return FileChange(self.path, action, _diff(self.path, self.before or b"", self.after or b""))


@dataclass(frozen=True)
class Plan:
    files: tuple[FilePlan, ...]
    now: Findings
    then: Findings
    ours: frozenset[str] = frozenset()
    """Handlers that CRI must serve when it is done."""
    gone: frozenset[str] = frozenset()
    """Handlers that CRI must not serve when it is done."""
    sockets: tuple[str, ...] = ()
    """Sockets of snapshotters that must listen."""


@dataclass
class Snapshot:
    """The files as they lie on disk, and what `overlay` would make of them."""

    host: HostRoot
    config_path: str
    version: Version
    overlay: dict[str, bytes | None] = field(default_factory=dict)

    def effective(self) -> Effective:
        return load(self.host, self.config_path, self.version, self.overlay)

    def examine(self, effective: Effective) -> Findings:
        return cri_section.examine(effective, self.host, self.version)

    def rewrite(self, effective: Effective, change: Callable[[bytes], bytes]) -> None:
        """Run `change` over every loaded file; what differs goes into the overlay."""
        for file in effective.files:
            real = self.host.real(file.path)
            held = self.overlay.get(real, file.data)
            data = held if held is not None else file.data
            after = change(data)
            if after != data:
                self.overlay[real] = after

    def files(self, before: Mapping[str, bytes]) -> tuple[FilePlan, ...]:
        plans = [FilePlan(path, before.get(path), after) for path, after in self.overlay.items()]
        return tuple(plan for plan in plans if plan.before != plan.after)


def preflight(effective: Effective, now: Findings, version: Version) -> None:
    """Raises Refused when the files could not start and serve as they are (design 6.2)."""
    if not (now.loads and now.serves):
        first = now.findings[0]
        raise Refused(first.code, first.message, now.findings)
    if effective.version > 2:
        text = f"`version = {effective.version}` files are not for containerd {version}"
        raise Refused(Code.DIALECT_MISMATCH, text, now.findings)


def plan_apply(snapshot: Snapshot, name: str, data: RevisionData, held: tuple[str, ...] | None) -> Plan:
    """`held`: the handlers that the journal says are there for `name`, None for none. Raises Refused."""
    effective = snapshot.effective()
    now = snapshot.examine(effective)
    preflight(effective, now, snapshot.version)
    before = _real_bytes(snapshot, effective)
    written = [handler for handler in data.handlers if handler.written_by is WrittenBy.AGENT]
    base = _without(snapshot, effective, name, held)
    _no_conflicts(snapshot.effective(), [handler.name for handler in written])
    if written or data.snapshotters:
        _place(snapshot, effective, base, name, data)
    _settle_runc(snapshot)
    then = _predict(snapshot, base, frozenset(handler.name for handler in written), _proxies(data), now)
    ours = frozenset(handler.name for handler in data.handlers)
    gone = frozenset(now.handlers) - frozenset(then.handlers)
    sockets = tuple(snapshotter.address for snapshotter in data.snapshotters)
    return Plan(snapshot.files(before), now, then, ours, gone, sockets)


def plan_remove(snapshot: Snapshot, name: str, held: tuple[str, ...] | None) -> Plan:
    """As `plan_apply`; nothing of `name` on disk gives a plan without files."""
    effective = snapshot.effective()
    now = snapshot.examine(effective)
    before = _real_bytes(snapshot, effective)
    base = _without(snapshot, effective, name, held)
    if not snapshot.overlay and (held is None or not effective.fatal):
        return Plan((), now, now)
    preflight(effective, now, snapshot.version)
    _settle_runc(snapshot)
    _drop_created(snapshot)
    then = _predict(snapshot, base, frozenset(), {}, now, removal=True)
    gone = frozenset(now.handlers) - frozenset(then.handlers)
    return Plan(snapshot.files(before), now, then, frozenset(), gone)


def _real_bytes(snapshot: Snapshot, effective: Effective) -> dict[str, bytes]:
    return {snapshot.host.real(file.path): file.data for file in effective.files}


def _without(snapshot: Snapshot, effective: Effective, name: str, held: tuple[str, ...] | None) -> Effective:
    """The configuration less `name`; leaves the overlay that makes it."""
    strip = _stripper(effective, name, held)
    snapshot.rewrite(effective, strip)
    return snapshot.effective()


def _stripper(effective: Effective, name: str, held: tuple[str, ...] | None) -> Callable[[bytes], bytes]:
    """Takes `name` out: by its block, or by the headers of what the journal holds when the comments are gone."""
    if held and not any(blocks.get(file.data, name) for file in effective.files):
        runtimes = ("plugins", cri_section.plugin_id(effective), "containerd", "runtimes")
        return lambda data: blocks.take_tables(data, [(*runtimes, handler) for handler in held])
    return lambda data: blocks.take(data, name)


def _no_conflicts(base: Effective, names: list[str]) -> None:
    held = cri_section.served_runtimes(base)
    if len(names) != len(set(names)):
        raise Refused(Code.HANDLER_CONFLICT, f"a handler is named twice: {sorted(names)}")
    for name in names:
        if name in held:
            where = base.origin.get(cri_section.plugin_id(base), base.main)
            raise Refused(Code.HANDLER_CONFLICT, f"{where} defines the handler {name} already")


def _proxies(data: RevisionData) -> dict[str, dict[str, Any]]:
    return {snapshotter.name: render.proxy_table(snapshotter) for snapshotter in data.snapshotters}


def _place(
    snapshot: Snapshot,
    effective: Effective,
    base: Effective,
    name: str,
    data: RevisionData,
) -> None:
    """Put the block of `name` into the file whose CRI section wins; the overlay has taken it out of all others."""
    plugin = cri_section.plugin_id(base)
    text = _text(base, plugin, data)
    target = snapshot.host.real(base.origin.get(plugin, base.main))
    for file in effective.files:
        if snapshot.host.real(file.path) == target:
            data_now = file.data if blocks.get(file.data, name) else snapshot.overlay.get(target) or file.data
            snapshot.overlay[target] = blocks.put(data_now, name, text)
    if not effective.exists:
        snapshot.overlay[target] = blocks.put(blocks.CREATED, name, text)


def _text(base: Effective, plugin: str, data: RevisionData) -> str:
    cgroup = cri_section.systemd_cgroup(base)
    out = ""
    for handler in data.handlers:
        if handler.written_by is WrittenBy.AGENT:
            table = render.handler_table(handler, systemd_cgroup=cgroup)
            out += render.table_text(("plugins", plugin, "containerd", "runtimes", handler.name), table)
    held = base.document.get("proxy_plugins", {})
    for name, table in _proxies(data).items():
        if name not in held:
            out += render.table_text(("proxy_plugins", name), table)
        elif {key: value for key, value in held[name].items() if value} != table:
            raise Refused(Code.HANDLER_CONFLICT, f"the proxy plugin {name} is defined already, and differently")
    return out


def _settle_runc(snapshot: Snapshot) -> None:
    """Write, keep or drop our `runc` table: it is needed while any other runtime hides the built-in one."""
    kept = dict(snapshot.overlay)
    snapshot.rewrite(snapshot.effective(), lambda data: blocks.take(data, blocks.RUNC_OWNER))
    bare = snapshot.effective()
    runtimes = cri_section.written_runtimes(bare)
    hidden = bool(runtimes) and cri_section.RUNC not in runtimes
    if not hidden or cri_section.default_runtime(bare) != cri_section.RUNC:
        return
    plugin = cri_section.plugin_id(bare)
    target = snapshot.host.real(bare.origin.get(plugin, bare.main))
    table = {"runtime_type": render.RUNC_TYPE}
    text = render.table_text(("plugins", plugin, "containerd", "runtimes", cri_section.RUNC), table)
    data = kept.get(target) or next(f.data for f in bare.files if snapshot.host.real(f.path) == target)
    snapshot.overlay[target] = blocks.put(data, blocks.RUNC_OWNER, text)


def _drop_created(snapshot: Snapshot) -> None:
    """A file that we made and that holds nothing else goes."""
    for path, data in snapshot.overlay.items():
        if data == blocks.CREATED:
            snapshot.overlay[path] = None


def _predict(
    snapshot: Snapshot,
    base: Effective,
    handlers: frozenset[str],
    proxies: Mapping[str, Any],
    now: Findings,
    *,
    removal: bool = False,
) -> Findings:
    """What would be served. Raises Refused unless it serves and differs from `base` by exactly ours."""
    effective = snapshot.effective()
    then = snapshot.examine(effective)
    if effective.fatal:
        raise Refused(*_misfit(base, effective.fatal[0]), now.findings)
    if not then.serves:
        first = then.findings[0]
        code = Code.HANDLER_IN_USE if removal else first.code
        raise Refused(code, f"the result would not serve: {first.message}", now.findings)
    wanted = _others(base, handlers, proxies)
    got = _others(effective, handlers, proxies)
    if wanted != got:
        raise Refused(Code.UNSUPPORTED_SYNTAX, "the edit would change settings of others", now.findings)
    missing = handlers - set(then.handlers)
    if missing:
        raise Refused(Code.SHADOWED_BY_IMPORT, f"handlers {sorted(missing)} would not be in force", now.findings)
    return then


def _misfit(base: Effective, finding: Finding) -> tuple[Code, str]:
    """Why a block could not be appended to a file that is fine without it."""
    plugins = base.document.get("plugins")
    inline = isinstance(plugins, dict) and any(
        b"plugins" in line and b"{" in line for file in base.files for line in file.data.splitlines()
    )
    code = Code.INLINE_PLUGINS if inline else Code.UNSUPPORTED_SYNTAX
    return code, f"our tables cannot be added: {finding.message}"


def _others(effective: Effective, handlers: frozenset[str], proxies: Mapping[str, Any]) -> dict[str, Any]:
    """The merged document without what is ours, and without what is empty then."""
    document = {key: value for key, value in effective.document.items() if key not in ("imports", "version")}
    document["effective_version"] = effective.version if effective.exists else 2
    plugins = dict(document.get("plugins", {}))
    plugin = cri_section.plugin_id(effective)
    section = dict(plugins.get(plugin, {}))
    containerd = dict(section.get("containerd", {}))
    runtimes = dict(containerd.get("runtimes", {}))
    runc = {"runtime_type": render.RUNC_TYPE}
    kept = {name: table for name, table in runtimes.items() if name not in handlers and (name, table) != ("runc", runc)}
    held = document.get("proxy_plugins", {})
    document["proxy_plugins"] = {name: table for name, table in held.items() if name not in proxies}
    containerd["runtimes"] = kept
    section["containerd"] = _full(containerd)
    plugins[plugin] = _full(section)
    document["plugins"] = _full(plugins)
    return _full(document)


def _full(table: dict[str, Any]) -> dict[str, Any]:
    """`table` without empty tables: an empty one says nothing."""
    return {key: value for key, value in table.items() if value != {}}


def _diff(path: str, before: bytes, after: bytes) -> str:
    old = before.decode(errors="replace").splitlines(keepends=True)
    new = after.decode(errors="replace").splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, f"a{path}", f"b{path}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
