"""The files of one host as they lie on disk, and a change to them that is not written yet. Pure but for reads."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.hostconfig import crosscheck, writing
from reconciler.hostconfig.checks import examine
from reconciler.hostconfig.dump import Dump
from reconciler.hostconfig.effective import DEFAULT_CONFIG, Effective, load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.last_good import Kept, LastGood, noted
from reconciler.hostconfig.model import Code, FileChange, Findings, Refused
from reconciler.hostconfig.template import Template
from reconciler.hostconfig.version import Version


@dataclass(frozen=True)
class FilePlan:
    """One file to write: `before` None means it is not there, `after` None that it goes."""

    path: str
    """The host's, links followed: the file itself."""
    before: bytes | None
    after: bytes | None
    mode: int = writing.MODE
    """Of a file that is not there yet."""

    def change(self) -> FileChange:
        action = "created" if self.before is None else "deleted" if self.after is None else "edited"
        return FileChange(self.path, action, _diff(self.path, self.before or b"", self.after or b""))


@dataclass(frozen=True)
class Plan:
    files: tuple[FilePlan, ...]
    """In the order in which they are written."""
    now: Findings
    then: Findings
    ours: frozenset[str] = frozenset()
    """Handlers that CRI must serve when it is done."""
    written: frozenset[str] = frozenset()
    """Those of them that we write: a payload's own tables are not ours to take out."""
    gone: frozenset[str] = frozenset()
    """Handlers that CRI must not serve when it is done."""
    sockets: tuple[str, ...] = ()
    """Sockets of snapshotters that must listen."""


@dataclass
class Snapshot:
    """`overlay` (real path → bytes, None: gone) is the change; `seen` the bytes that it was worked out from."""

    host: HostRoot
    config_path: str
    version: Version
    dump: Dump | None = None
    """The host's own binary, for a second opinion."""
    last_good: LastGood | None = None
    """What the main file was, when something of ours is on the host."""
    template: Template | None = None
    """What the main file is rendered from at each start: edits of the main file go there."""
    overlay: dict[str, bytes | None] = field(default_factory=dict)
    seen: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    """Of files that are put where there are none, where it is not the usual one."""

    @property
    def main(self) -> str:
        """Real path of the main file."""
        return self.host.real(self.config_path or DEFAULT_CONFIG)

    def effective(self) -> Effective:
        """What containerd makes of the files with the change."""
        effective = load(self.host, self.config_path, self.version, self.view())
        for file in effective.files:
            real = self.host.real(file.path)
            if real not in self.overlay:
                self.seen.setdefault(real, file.data)
        return effective

    def view(self) -> dict[str, bytes | None]:
        """The change as containerd will read it: with what is rendered at its start."""
        if self.template is None or not self.host.exists(self.template.rendered):
            return self.overlay
        return {**self.overlay, self.template.rendered: self.read(self.template.rendered)}

    def examine(self, effective: Effective) -> Findings:
        """What is found in it. The binary is asked about files that are there, not about a change."""
        found = examine(effective, self.host)
        if self.overlay:
            return found
        if self.dump is not None:
            found = crosscheck.examine(self.dump, self.config_path, found, effective.main)
        return noted(found, effective.main, self.read(self.main)) if self._lost(found) else found

    def _lost(self, found: Findings) -> Kept | None:
        if self.last_good is None or any(one.code is Code.UNSUPPORTED_SYNTAX for one in found.findings):
            return None
        try:
            return self.last_good.lost(self.main, self.read(self.main), loads=found.loads)
        except (OSError, Refused):
            return None  # there, and not a file that can be read

    def put_back_main(self) -> None:
        """The last good main file in place of one that vanished; no change when that is not known."""
        kept = self._lost(examine(self.effective(), self.host))
        if kept is not None:
            self.put(kept.path, kept.data)
            self.modes[kept.path] = kept.mode

    def compare(self, plan: Plan) -> None:
        """Raises Refused when the binary sees another difference than `plan` says."""
        if self.dump is not None and plan.files:
            before = {} if self.template is None else {self.main: self.seen[self.main]}
            mine = plan.ours | plan.gone
            crosscheck.compare(self.dump, self.config_path, before, self.view(), plan.then.handlers, mine)

    def read(self, real: str) -> bytes | None:
        """One file with the change; None when it is not there. Raises Refused(NotWritable)."""
        if self.template is not None and real == self.template.rendered and self.host.exists(real):
            return self.template.rendered_from(self.read(self.template.path), self.host.read(real))
        if real in self.overlay:
            return self.overlay[real]
        if real not in self.seen:
            try:
                self.seen[real] = self.host.read(real)
            except (FileNotFoundError, NotADirectoryError):
                self.seen[real] = None
            except OSError as error:
                raise Refused(Code.NOT_WRITABLE, f"{real} cannot be read: {error.strerror}") from error
        return self.seen[real]

    def put(self, real: str, data: bytes | None) -> None:
        """Change one file; back to what it was is no change. Of a rendered one only our blocks can change."""
        if self.template is not None and real == self.template.rendered:
            real, data = self.template.path, self.template.template_for(self.read(self.template.path), data or b"")
        self.read(real)
        self.overlay[real] = data
        if self.seen[real] == data:
            del self.overlay[real]

    def rewrite(self, effective: Effective, change: Callable[[bytes], bytes]) -> None:
        """Run `change` over every loaded file."""
        for file in effective.files:
            real = self.host.real(file.path)
            data = self.read(real)
            if data is not None:
                self.put(real, change(data))

    def files(self) -> tuple[FilePlan, ...]:
        """The changes in the order in which every state between two of them starts.

        Drop-ins come before the main file that imports them, and go after it.
        """
        plans = [
            FilePlan(path, self.seen[path], after, self.modes.get(path, writing.MODE))
            for path, after in self.overlay.items()
        ]
        return tuple(
            sorted(plans, key=lambda plan: (1 if plan.path == self.main else 2 * (plan.after is None), plan.path))
        )


def _diff(path: str, before: bytes, after: bytes) -> str:
    old = before.decode(errors="replace").splitlines(keepends=True)
    new = after.decode(errors="replace").splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, f"a{path}", f"b{path}")
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
