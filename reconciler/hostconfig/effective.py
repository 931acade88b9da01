"""What containerd makes of its main file and everything that it imports (`config.go` of 1.6, 1.7 and 2.0 to 2.3).

Breadth first, the main file first, the last one wins; how two files are merged is in `merging`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.hostconfig import merging
from reconciler.hostconfig.document import Document, Unreadable, line_of, parse
from reconciler.hostconfig.hostroot import BadPattern, HostRoot
from reconciler.hostconfig.mending import OUR_PREFIX, is_leftover, mended
from reconciler.hostconfig.model import Code, Finding
from reconciler.hostconfig.version import Version

DEFAULT_CONFIG = "/etc/containerd/config.toml"
FILES_MAX = 500
"""Imported files; far above anything seen, so that a mistake cannot run away."""


@dataclass(frozen=True)
class LoadedFile:
    path: str
    """As containerd names it (links not followed)."""
    data: bytes
    document: Document
    """As written."""


@dataclass
class Effective:
    """The merged configuration, and where its plugin sections come from."""

    main: str
    containerd: Version
    exists: bool = False
    """The main file is there."""
    files: list[LoadedFile] = field(default_factory=list)
    merged: Document = field(default_factory=dict)
    """All files together, before the migration that 2.0 to 2.2 do last."""
    document: Document = field(default_factory=dict)
    """In the ids that the daemon reads."""
    origin: dict[str, str] = field(default_factory=dict)
    """Plugin id as written → path of the last file that has it."""
    findings: list[Finding] = field(default_factory=list)
    """All of them; those in `fatal` keep the daemon from starting."""
    fatal: list[Finding] = field(default_factory=list)

    @property
    def version(self) -> int:
        """The `version` that is in force; a missing one means 1."""
        value = self.merged.get("version", 0)
        return value if isinstance(value, int) and value else 1

    def stop(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.fatal.append(finding)


def load(
    host: HostRoot, config_path: str, version: Version, overlay: Mapping[str, bytes | None] | None = None
) -> Effective:
    """Read everything as the daemon would. `overlay` (real path → bytes, None: gone) stands in for files on disk."""
    return _Loader(host, version, overlay or {}).run(config_path)


@dataclass(frozen=True)
class _Import:
    path: str
    importer: str = ""
    line: int | None = None
    """Of the entry in the importer."""

    @property
    def where(self) -> str:
        return f"{self.importer}:{self.line}" if self.line else self.importer


class _Loader:
    def __init__(self, host: HostRoot, version: Version, overlay: Mapping[str, bytes | None]) -> None:
        self._host, self._version, self._overlay = host, version, overlay
        self._root_version = 0

    def run(self, config_path: str) -> Effective:
        result = Effective(main=config_path or DEFAULT_CONFIG, containerd=self._version)
        if not self._version.one:
            result.merged["version"] = self._version.config_version_max
        if self._is_missing(result.main):
            if config_path:
                result.stop(Finding(Code.MISSING_CONFIG, config_path, f"{config_path}, named by --config, is missing"))
            return result
        result.exists = True
        queue, seen = [_Import(result.main)], {result.main}
        while queue and len(result.files) < FILES_MAX:
            one = queue.pop(0)
            loaded = self._load(result, one)
            if loaded is None:
                continue
            self._merge(result, loaded)
            for found in self._imports(result, loaded):
                if found.path in seen:
                    if found.path in (one.path, result.main):
                        text = f"{found.where} imports {found.path} again; harmless"
                        result.findings.append(Finding(Code.IMPORT_CYCLE, one.path, text, found.line))
                    continue
                seen.add(found.path)
                queue.append(found)
        result.document = merging.finished(result.merged, self._version)
        return result

    def _merge(self, result: Effective, loaded: LoadedFile) -> None:
        result.files.append(loaded)
        self._no_newer_drop_in(result, loaded)
        merging.merge(result.merged, merging.as_merged(loaded.document, result.version, self._version), self._version)
        for plugin in loaded.document.get("plugins", {}):
            result.origin[plugin] = loaded.path

    def _no_newer_drop_in(self, result: Effective, loaded: LoadedFile) -> None:
        own = loaded.document.get("version", 0)
        self._root_version = self._root_version or own
        if self._version.refuses_newer_drop_ins and own > self._root_version:
            text = (
                f"{loaded.path}: `version = {own}` is above the main file's {self._root_version}; "
                f"containerd {self._version} does not start with it: take the `version` line out"
            )
            result.stop(Finding(Code.DIALECT_MISMATCH, loaded.path, text, line_of(loaded.data, "version")))

    def _is_missing(self, path: str) -> bool:
        try:
            return self._read(path) is None
        except OSError:
            return False  # there, and not readable: told when it is loaded

    def _read(self, path: str) -> bytes | None:
        """None: missing. Raises OSError."""
        real = self._host.real(path)
        if real in self._overlay:
            return self._overlay[real]
        try:
            return self._host.read(path)
        except FileNotFoundError:
            return None

    def _load(self, result: Effective, one: _Import) -> LoadedFile | None:
        path = one.path
        try:
            data = self._read(path)
            if data is None:
                result.stop(_dangling(one))
                return None
            document = parse(path, data, bom_allowed=self._version.one)
        except IsADirectoryError:
            text = f"{path} is imported by {one.where} and is a directory: move it elsewhere"
            result.stop(Finding(Code.DIRECTORY_IN_DROP_INS, path, text))
        except OSError as error:
            result.stop(Finding(Code.DANGLING_IMPORT, path, f"{path} cannot be read: {error.strerror}"))
        except Unreadable as error:
            ours = posixpath.basename(path).startswith(OUR_PREFIX)
            result.stop(replace(error.finding, repairable=ours or mended(data or b"") is not None))
        else:
            problem = _shape(path, document)
            if problem is None:
                return LoadedFile(path, data, document)
            result.stop(problem)
        return None

    def _imports(self, result: Effective, loaded: LoadedFile) -> list[_Import]:
        entries: list[str] = loaded.document.get("imports", [])
        out: list[_Import] = []
        for number, entry in enumerate(entries):
            line = line_of(loaded.data, entry)
            if entry in entries[:number]:
                text = f"{loaded.path} imports {entry} twice; harmless"
                finding = Finding(Code.DUPLICATE_IMPORT, loaded.path, text, line, repairable=is_leftover(entry))
                result.findings.append(finding)
            if not entry:
                text = f"{loaded.path} has an empty import, which is a directory for containerd: take it out"
                result.stop(Finding(Code.DANGLING_IMPORT, loaded.path, text, line_of(loaded.data, "imports"), True))
                continue
            out += [_Import(path, loaded.path, line) for path in self._resolve(result, loaded.path, entry)]
        return out

    def _resolve(self, result: Effective, importer: str, entry: str) -> list[str]:
        folder = posixpath.dirname(importer)
        if "*" not in entry:
            return [posixpath.normpath(posixpath.join(folder, entry))]
        base = folder if self._version.resolves_relative_globs else "/"
        try:
            matches = self._host.glob(posixpath.join(base, entry), self._overlay)
        except BadPattern as error:
            result.stop(Finding(Code.INVALID_TOML, importer, f"{importer}: {error}"))
            return []
        for match in matches:
            if not match.endswith(".toml"):
                text = f"{match} does not end in .toml but is loaded by {entry}: move it elsewhere if it is a backup"
                result.findings.append(Finding(Code.BACKUP_IN_DROP_INS, match, text))
        return matches


def _dangling(one: _Import) -> Finding:
    text = f"{one.path} is imported by {one.where} and is not there: take the entry out or put the file back"
    return Finding(Code.DANGLING_IMPORT, one.path, text, repairable=is_leftover(one.path))


def _shape(path: str, document: Document) -> Finding | None:
    """Why containerd would refuse to decode the top level of `document`, or None."""

    def bad(text: str) -> Finding:
        return Finding(Code.INVALID_TOML, path, f"{path}: {text}")

    version = document.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool):
        return bad("`version` must be an integer")
    for key in merging.LISTS:
        value = document.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return bad(f"`{key}` must be a list of strings")
    for key in merging.TABLES:
        value = document.get(key, {})
        if not isinstance(value, dict):
            return bad(f"`{key}` must be a table")
    for key in ("plugins", "proxy_plugins"):
        for name, value in document.get(key, {}).items():
            if not isinstance(value, dict):
                return bad(f"`{key}.{name}` must be a table")
    return None
