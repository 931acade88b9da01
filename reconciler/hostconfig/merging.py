"""How containerd merges a further file into what it has read so far, and what it makes of the whole.

Up to 1.7 (mergo with override and appended lists): a plugin's section, a proxy plugin, a stream processor
and a timeout of a later file replace the whole earlier one. From 2.0 on `plugins` are merged key by key,
inside them every later value wins and lists are replaced, and top-level lists are united.
2.0 to 2.2 merge files as written and migrate once, by the last `version` seen; 2.3 migrates each file first.
"""

from __future__ import annotations

from typing import Any

from reconciler.hostconfig.dialects import Table, migrate_plugins, migrate_servers, rename_v1, table
from reconciler.hostconfig.version import Version

REPLACED_WHOLE = ("proxy_plugins", "stream_processors", "timeouts")
TABLES = ("plugins", *REPLACED_WHOLE)
LISTS = ("imports", "disabled_plugins", "required_plugins")


def as_merged(document: Table, so_far: int, version: Version) -> Table:
    """One file as it goes into the merge; `so_far` is the version in force before it."""
    if version.one:
        return document
    own = document.get("version", 0)
    if version.migrates_each_file:
        return _latest(document, version) if own < version.config_version_max else document
    return {**rename_v1(document), "version": so_far} if own < 2 else document


def finished(document: Table, version: Version) -> Table:
    """The merged document in the ids that the daemon reads."""
    if version.one or version.migrates_each_file or document.get("version", 0) >= version.config_version_max:
        return document
    return {**document, "plugins": migrate_plugins(table(document, "plugins"), version)}


def merge(target: Table, document: Table, version: Version) -> None:
    """Merge a further file into `target`, in place."""
    for key, value in document.items():
        if key == "plugins":
            old = target.get(key, {})
            target[key] = {**old, **value} if version.one else deep(old, value)
        elif key in REPLACED_WHOLE:
            target[key] = {**target.get(key, {}), **value}
        elif key in LISTS:
            joined = target.get(key, []) + value
            target[key] = joined if version.one else list(dict.fromkeys(joined))
        else:
            target[key] = _override(target.get(key), value)


def deep(old: Any, new: Any) -> Any:
    """Inside plugins of 2.x: tables by key, everything else replaced, zero values too."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: deep(old[key], value) if key in old else value for key, value in new.items()}}


def _latest(document: Table, version: Version) -> Table:
    out = rename_v1(document) if document.get("version", 0) < 2 else dict(document)
    if "plugins" in out:
        out["plugins"] = migrate_plugins(out["plugins"], version)
    return {**migrate_servers(out), "version": version.config_version_max}


def _override(old: Any, new: Any) -> Any:
    """mergo with override: a later value wins unless it is a zero value; tables are merged by key."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _override(old.get(key), value) for key, value in new.items()}}
    return old if old is not None and not new else new
