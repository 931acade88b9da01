"""What the engine answers: outcomes, findings, changes. The JSON contract of design section 7."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Code(enum.StrEnum):
    """Reasons and finding codes (design section 7); a closed set."""

    INVALID_TOML = "InvalidToml"
    DANGLING_IMPORT = "DanglingImport"
    DUPLICATE_IMPORT = "DuplicateImport"
    IMPORT_CYCLE = "ImportCycle"
    MISSING_CONFIG = "MissingConfig"
    CRI_DISABLED = "CRIDisabled"
    CRI_INVALID = "CRIInvalid"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    UNSUPPORTED_DISTRIBUTION = "UnsupportedDistribution"
    TEMPLATE_FILE = "TemplateFile"
    INLINE_PLUGINS = "InlinePlugins"
    SHADOWED_BY_IMPORT = "ShadowedByImport"
    HANDLER_CONFLICT = "HandlerConflict"
    HANDLER_IN_USE = "HandlerInUse"
    DEFAULT_RUNTIME_MISSING = "DefaultRuntimeMissing"
    REGISTRY_CONFLICT = "RegistryConflict"
    DIALECT_MISMATCH = "DialectMismatch"
    INCOMPLETE_PROXY_PLUGIN = "IncompleteProxyPlugin"
    DIRECTORY_IN_DROP_INS = "DirectoryInDropIns"
    BACKUP_IN_DROP_INS = "BackupInDropIns"
    BUSY = "Busy"
    FOREIGN_CHANGE = "ForeignChange"
    NOT_WRITABLE = "NotWritable"
    UNSUPPORTED_SYNTAX = "UnsupportedSyntax"
    PENDING_FOREIGN_CHANGE = "PendingForeignChange"
    VERIFY_FAILED = "VerifyFailed"
    NOT_OURS = "NotOurs"
    CONTESTED = "Contested"
    """Of the guard alone: a file was put back as often as may be, and is changed again."""


class Verdict(enum.StrEnum):
    """`outcome` of the JSON contract."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    REPAIRED = "repaired"
    OK = "ok"
    BROKEN = "broken"


GOOD = frozenset({Verdict.CHANGED, Verdict.UNCHANGED, Verdict.REPAIRED, Verdict.OK})


@dataclass(frozen=True)
class Finding:
    """One thing that is noteworthy about the files on disk; `path` is the host's, `line` counts from 1."""

    code: Code
    path: str
    message: str
    line: int | None = None
    repairable: bool = False

    def document(self) -> dict[str, Any]:
        return {
            "code": self.code.value,
            "path": self.path,
            "line": self.line,
            "message": self.message,
            "repairable": self.repairable,
        }


@dataclass(frozen=True)
class FileChange:
    """One file that was, or would be, `created`, `edited` or `deleted`; `diff` is unified."""

    path: str
    action: str
    diff: str

    def document(self) -> dict[str, Any]:
        return {"path": self.path, "action": self.action, "diff": self.diff}


@dataclass(frozen=True)
class Findings:
    """What containerd would make of the files as they lie on disk."""

    loads: bool
    """The daemon would start."""
    serves: bool
    """Its CRI plugin would serve."""
    handlers: tuple[str, ...] = ()
    """Handlers of the effective configuration, sorted, served or not; empty when it does not load."""
    default_runtime: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def fatal(self) -> Finding | None:
        """The finding for which it would not serve, the first one."""
        return None if self.loads and self.serves else next(iter(self.findings), None)


@dataclass(frozen=True)
class Outcome:
    """What one operation did."""

    verdict: Verdict
    reason: Code | None = None
    message: str = ""
    files: tuple[FileChange, ...] = ()
    handlers: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    restarted: bool = False
    """containerd was restarted by us, for the change or for its undo."""
    undone: bool = False
    """The change was made, proven bad and taken back; verdict is then `broken`."""
    outage: float = 0.0
    """Seconds from the stop of containerd until CRI was proven to serve again; 0 without a restart."""

    @property
    def good(self) -> bool:
        return self.verdict in GOOD

    def document(self) -> dict[str, Any]:
        """The JSON object of design section 7."""
        return {
            "outcome": self.verdict.value,
            "reason": self.reason.value if self.reason else None,
            "message": self.message,
            "files": [change.document() for change in self.files],
            "handlers": list(self.handlers),
            "findings": [finding.document() for finding in self.findings],
            "restarted": self.restarted,
            "undone": self.undone,
            "outage": self.outage,
        }


class HostConfigError(Exception):
    """Base of the engine's errors."""


class Refused(HostConfigError):
    """Nothing was changed, for the reason `code`."""

    def __init__(self, code: Code, message: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.findings = findings

    def outcome(self) -> Outcome:
        return Outcome(Verdict.REFUSED, self.code, self.message, findings=self.findings)


@dataclass
class Timing:
    """Limits of a restart and its proof, in seconds (design 6.9 and 6.10)."""

    lock_wait: float = 30.0
    """How long to wait for the host-wide lock before `Busy`."""
    restart: float = 25.0
    """Longest wait for systemd's answer to a restart; the proof goes on after it."""
    verify: float = 20.0
    """From the stop until CRI must serve when nothing says that it is still starting; kubelet says NotReady at 25."""
    poll: float = 0.05
    call: float = 2.0
    """One CRI call of the proof."""
    dead_man_early: float = 15.0
    """The host undoes by itself after this, if we do not disarm and containerd is down."""
    dead_man: float = 45.0
    """And after this whatever containerd does."""
