"""Which bytes of which files an apply or a remove would leave: pure, on a snapshot of the files.

Rules of design 6.3 to 6.6. The tables of one runtime are taken out wherever they are (a containerd may
have been upgraded under them), put where this containerd wants them, and the predicted difference must
be exactly ours.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any

from reconciler.api.noderuntime import Handler, RevisionData, WrittenBy
from reconciler.hostconfig import blocks, cri_section, dropins, render, winning_file
from reconciler.hostconfig.dialects import CRI_IMAGES, CRI_RUNTIME, CRI_V1, CRI_V2, MOVED_WITH_RUNTIMES, table
from reconciler.hostconfig.distribution import is_generated, no_place
from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.handler_keys import check_extra
from reconciler.hostconfig.model import Code, Findings, Refused
from reconciler.hostconfig.prediction import Ours, predict
from reconciler.hostconfig.snapshot import Plan, Snapshot


def preflight(snapshot: Snapshot, now: Findings, base: Effective) -> None:
    """Raises Refused when the files could not start and serve as they are (design 6.2).

    What only our own part breaks (a containerd that was downgraded under it) is no reason: it goes or is replaced.
    """
    if not (now.loads and now.serves):
        healed = snapshot.examine(base) if snapshot.overlay else now
        if not (healed.loads and healed.serves):
            first = now.findings[0]
            raise Refused(first.code, first.message, now.findings)
    if base.version > base.containerd.config_version_max:
        text = f"`version = {base.version}` files are not for containerd {base.containerd}"
        raise Refused(Code.DIALECT_MISMATCH, text, now.findings)


def plan_apply(snapshot: Snapshot, name: str, data: RevisionData, held: tuple[str, ...] | None) -> Plan:
    """`held`: the handlers that the journal says are there for `name`, None for none. Raises Refused."""
    effective = snapshot.effective()
    now = snapshot.examine(effective)
    written = [handler for handler in data.handlers if handler.written_by is WrittenBy.AGENT]
    check_extra(written, snapshot.version)
    base = _without(snapshot, effective, name, held)
    preflight(snapshot, now, base)
    if snapshot.template is not None and snapshot.template.is_unread(snapshot.host):
        text = f"{snapshot.template.path} was changed since it was rendered: restart its service first"
        raise Refused(Code.PENDING_FOREIGN_CHANGE, text, now.findings)
    _no_conflicts(base, [handler.name for handler in written])
    if written or data.snapshotters:
        _place(snapshot, base, name, _text(base, written, data))
    _settle(snapshot)
    ours = Ours(frozenset(handler.name for handler in written), frozenset(_proxies(data)))
    then = predict(snapshot, base, ours, now)
    return Plan(
        snapshot.files(),
        now,
        then,
        ours=frozenset(handler.name for handler in data.handlers),
        written=ours.handlers,
        gone=frozenset(now.handlers) - frozenset(then.handlers),
        sockets=tuple(snapshotter.address for snapshotter in data.snapshotters),
    )


def plan_remove(snapshot: Snapshot, name: str, held: tuple[str, ...] | None) -> Plan:
    """As `plan_apply`; nothing of `name` on disk gives a plan without files."""
    effective = snapshot.effective()
    now = snapshot.examine(effective)
    base = _without(snapshot, effective, name, held)
    _settle(snapshot)
    if not snapshot.overlay and (held is None or not effective.fatal):
        return Plan((), now, now)
    preflight(snapshot, now, base)
    then = predict(snapshot, base, Ours(), now)
    return Plan(snapshot.files(), now, then, gone=frozenset(now.handlers) - frozenset(then.handlers))


def _without(snapshot: Snapshot, effective: Effective, name: str, held: tuple[str, ...] | None) -> Effective:
    """The configuration less `name`; leaves the change that makes it."""
    dropins.take(snapshot, effective, name)
    snapshot.rewrite(effective, _stripper(effective, name, held))
    return snapshot.effective()


def _stripper(effective: Effective, name: str, held: tuple[str, ...] | None) -> Callable[[bytes], bytes]:
    """Takes `name` out: by its block, or by the headers of what the journal holds when the comments are gone."""
    if not effective.containerd.one or not held or any(blocks.get(file.data, name) for file in effective.files):
        return lambda data: blocks.take(data, name)
    runtimes = ("plugins", cri_section.runtime_id(effective), "containerd", "runtimes")
    return lambda data: blocks.take_tables(data, [(*runtimes, handler) for handler in held])


def _settle(snapshot: Snapshot) -> None:
    """What follows from the handlers that are there: our `runc`, our import, a file of ours with nothing in it."""
    winning_file.settle_runc(snapshot)
    dropins.settle_import(snapshot)
    for path, data in list(snapshot.overlay.items()):
        if blocks.is_created(data):
            snapshot.put(path, None)


def _place(snapshot: Snapshot, base: Effective, name: str, text: str) -> None:
    drop_in = dropins.file_name(name)
    if not base.containerd.one and (snapshot.template is None or dropins.covered(snapshot.host, base, drop_in)):
        dropins.place(snapshot, base, name, text)
        return
    if is_generated(base.main) and snapshot.template is None:
        raise no_place(base.main)
    was = snapshot.seen.get(winning_file.target_of(snapshot, base))
    winning_file.place(snapshot, base, name, text, was)


def holds(snapshot: Snapshot, name: str) -> bool:
    """True when the files that are read hold something of `name`."""
    files = snapshot.effective().files
    wanted = dropins.file_name(name)
    return any(
        blocks.get(file.data, name)
        or (posixpath.basename(file.path) == wanted and not file.data.startswith(dropins.LEFT))
        for file in files
    )


def _no_conflicts(base: Effective, names: list[str]) -> None:
    held = cri_section.served_runtimes(base)
    if len(names) != len(set(names)):
        raise Refused(Code.HANDLER_CONFLICT, f"a handler is named twice: {sorted(names)}")
    for name in names:
        if name in held:
            raise Refused(Code.HANDLER_CONFLICT, f"{_definer(base, name)} defines the handler {name} already")


def _definer(base: Effective, handler: str) -> str:
    """The last file that writes the handler."""
    for file in reversed(base.files):
        plugins = table(file.document, "plugins")
        for plugin in (CRI_V1, CRI_V2, CRI_RUNTIME):
            if handler in table(table(table(plugins, plugin), "containerd"), "runtimes"):
                return file.path
    return f"containerd {base.containerd} itself"


def _proxies(data: RevisionData) -> dict[str, dict[str, Any]]:
    return {snapshotter.name: render.proxy_table(snapshotter) for snapshotter in data.snapshotters}


def _text(base: Effective, written: list[Handler], data: RevisionData) -> str:
    cgroup, plugin = cri_section.systemd_cgroup(base), written_id(base)
    out = ""
    for handler in written:
        tables = render.handler_table(handler, systemd_cgroup=cgroup)
        out += render.table_text(("plugins", plugin, "containerd", "runtimes", handler.name), tables)
        if handler.snapshotter is not None and not base.containerd.one:
            path = ("plugins", CRI_IMAGES, "runtime_platforms", handler.name)
            out += render.table_text(path, {"snapshotter": handler.snapshotter})
    held = base.document.get("proxy_plugins", {})
    for name, entry in _proxies(data).items():
        if name not in held:
            out += render.table_text(("proxy_plugins", name), entry)
        elif {key: value for key, value in held[name].items() if value} != entry:
            raise Refused(Code.HANDLER_CONFLICT, f"the proxy plugin {name} is defined already, and differently")
    return out


def written_id(base: Effective) -> str:
    """The id under which our handlers are read beside those of the files (facts on mixed versions and ids).

    Where a version 2 document has runtimes under the new id already, those under the old one are dropped
    by the migration; where it has them under the old one, the first under the new one would hide them. And
    the first runtime under the old one makes the migration move keys that it leaves behind without it.
    """
    if base.containerd.one:
        return cri_section.runtime_id(base)
    each = base.containerd.migrates_each_file
    document = base.files[0].document if each and base.files else base.merged
    plugins = table(document, "plugins")
    old = table(table(plugins, CRI_V2), "containerd")
    if document.get("version", 0) != 2 or "runtimes" in table(table(plugins, CRI_RUNTIME), "containerd"):
        return CRI_RUNTIME
    if "runtimes" in old:
        return CRI_V2
    return CRI_RUNTIME if {CRI_RUNTIME, CRI_IMAGES} & plugins.keys() or MOVED_WITH_RUNTIMES & old.keys() else CRI_V2
