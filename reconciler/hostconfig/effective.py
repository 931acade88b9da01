"""What containerd 1.x makes of its main file and everything that it imports (`imports.go` of 1.6 and 1.7).

Breadth first, the main file first, the last one wins; a plugin's section, a proxy plugin, a stream
processor and a timeout of a later file replace the whole earlier one; top-level lists are joined.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.hostconfig.document import Document, Unreadable, parse
from reconciler.hostconfig.hostroot import BadPattern, HostRoot
from reconciler.hostconfig.model import Code, Finding
from reconciler.hostconfig.version import Version

DEFAULT_CONFIG = "/etc/containerd/config.toml"
REPLACED_WHOLE = ("plugins", "proxy_plugins", "stream_processors", "timeouts")
JOINED = ("imports", "disabled_plugins", "required_plugins")
LEFTOVERS = ("kata-deploy", "runtime-reconciler-")
"""Imports of installers that are known to leave a dangling one behind; only these are repaired."""
FILES_MAX = 500
"""Imported files; far above anything seen, so that a mistake cannot run away."""


@dataclass(frozen=True)
class LoadedFile:
    path: str
    """As containerd names it (links not followed)."""
    data: bytes
    document: Document


@dataclass
class Effective:
    """The merged configuration, and where its plugin sections come from."""

    main: str
    exists: bool = False
    """The main file is there."""
    files: list[LoadedFile] = field(default_factory=list)
    document: Document = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    """Plugin id → path of the file whose section wins."""
    findings: list[Finding] = field(default_factory=list)
    """All of them; those in `fatal` keep the daemon from starting."""
    fatal: list[Finding] = field(default_factory=list)

    @property
    def version(self) -> int:
        """The `version` that is in force; a missing one means 1."""
        value = self.document.get("version", 0)
        return value if isinstance(value, int) and value else 1

    def stop(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.fatal.append(finding)


def load(
    host: HostRoot, config_path: str, version: Version, overlay: Mapping[str, bytes | None] | None = None
) -> Effective:
    """Read everything as the daemon would. `overlay` (real path → bytes, None: gone) stands in for files on disk."""
    return _Loader(host, version, overlay or {}).run(config_path)


class _Loader:
    def __init__(self, host: HostRoot, version: Version, overlay: Mapping[str, bytes | None]) -> None:
        self._host, self._version, self._overlay = host, version, overlay

    def run(self, config_path: str) -> Effective:
        result = Effective(main=config_path or DEFAULT_CONFIG)
        data = self._read(result.main)
        if data is None:
            if config_path:
                result.stop(Finding(Code.MISSING_CONFIG, config_path, f"{config_path}, named by --config, is missing"))
            return result
        result.exists = True
        queue, seen = [result.main], {result.main}
        while queue and len(result.files) < FILES_MAX:
            path = queue.pop(0)
            loaded = self._load(result, path)
            if loaded is None:
                continue
            merge(result, loaded)
            for found in self._imports(result, loaded):
                if found in seen:
                    if found == path or found == result.main:
                        result.findings.append(Finding(Code.IMPORT_CYCLE, path, f"{path} imports {found} again"))
                    continue
                seen.add(found)
                queue.append(found)
        return result

    def _read(self, path: str) -> bytes | None:
        """None: missing. Raises OSError."""
        real = self._host.real(path)
        if real in self._overlay:
            return self._overlay[real]
        try:
            return self._host.read(path)
        except FileNotFoundError:
            return None

    def _load(self, result: Effective, path: str) -> LoadedFile | None:
        try:
            data = self._read(path)
            if data is None:
                result.stop(_dangling(path))
                return None
            document = parse(path, data, bom_allowed=self._version.one)
        except IsADirectoryError:
            result.stop(Finding(Code.DIRECTORY_IN_DROP_INS, path, f"{path} is imported and is a directory"))
        except OSError as error:
            result.stop(Finding(Code.DANGLING_IMPORT, path, f"{path} cannot be read: {error.strerror}"))
        except Unreadable as error:
            result.stop(error.finding)
        else:
            problem = _shape(path, document)
            if problem is None:
                return LoadedFile(path, data, document)
            result.stop(problem)
        return None

    def _imports(self, result: Effective, loaded: LoadedFile) -> list[str]:
        entries: list[str] = loaded.document.get("imports", [])
        out: list[str] = []
        for number, entry in enumerate(entries):
            if entry in entries[:number]:
                result.findings.append(
                    Finding(Code.DUPLICATE_IMPORT, loaded.path, f"{loaded.path} imports {entry} twice; harmless")
                )
            out += self._resolve(result, loaded.path, entry)
        return out

    def _resolve(self, result: Effective, importer: str, entry: str) -> list[str]:
        folder = posixpath.dirname(importer)
        if "*" not in entry:
            return [posixpath.normpath(posixpath.join(folder, entry))]
        base = folder if self._version.resolves_relative_globs else "/"
        try:
            matches = self._host.glob(posixpath.join(base, entry))
        except BadPattern as error:
            result.stop(Finding(Code.INVALID_TOML, importer, f"{importer}: {error}"))
            return []
        for match in matches:
            if not match.endswith(".toml"):
                result.findings.append(
                    Finding(Code.BACKUP_IN_DROP_INS, match, f"{match} does not end in .toml but is loaded by {entry}")
                )
        return matches


def _dangling(path: str) -> Finding:
    repairable = any(mark in posixpath.basename(path) for mark in LEFTOVERS)
    return Finding(Code.DANGLING_IMPORT, path, f"{path} is imported and is not there", repairable=repairable)


def _shape(path: str, document: Document) -> Finding | None:
    """Why containerd would refuse to decode the top level of `document`, or None."""

    def bad(text: str) -> Finding:
        return Finding(Code.INVALID_TOML, path, f"{path}: {text}")

    version = document.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool):
        return bad("`version` must be an integer")
    for key in JOINED:
        value = document.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return bad(f"`{key}` must be a list of strings")
    for key in REPLACED_WHOLE:
        value = document.get(key, {})
        if not isinstance(value, dict):
            return bad(f"`{key}` must be a table")
    for key in ("plugins", "proxy_plugins"):
        for name, value in document.get(key, {}).items():
            if not isinstance(value, dict):
                return bad(f"`{key}.{name}` must be a table")
    return None


def merge(result: Effective, loaded: LoadedFile) -> None:
    """Merge a further file into `result` by the rules of 1.x."""
    result.files.append(loaded)
    target = result.document
    for key, value in loaded.document.items():
        if key in REPLACED_WHOLE:
            target.setdefault(key, {}).update(value)
        elif key in JOINED:
            target[key] = target.get(key, []) + value
        else:
            target[key] = _override(target.get(key), value)
    for plugin in loaded.document.get("plugins", {}):
        result.origin[plugin] = loaded.path


def _override(old: Any, new: Any) -> Any:
    """mergo with override: a later value wins unless it is a zero value; tables are merged by key."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: _override(old.get(key), value) for key, value in new.items()}}
    return old if old is not None and not new else new
