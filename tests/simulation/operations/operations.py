"""The steps of a walk, as plain data: a walk that lacks some of them is a walk, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Edits = tuple[tuple[str, Any], ...]
"""Path → value, in one write."""


@dataclass(frozen=True)
class Create:
    """Made anew; waits for one of that name that is still being deleted."""

    runtime: str


@dataclass(frozen=True)
class Delete:
    runtime: str


@dataclass(frozen=True)
class Edit:
    runtime: str
    edits: Edits


@dataclass(frozen=True)
class Revert:
    """Back to the spec before the last edit."""

    runtime: str


@dataclass(frozen=True)
class Wrong:
    """A value that is wrong; it is looked at how that is told, and it is reverted."""

    runtime: str
    edits: Edits
    found_by: Literal["schema", "controller", "older CRD", "node"]
    """Who has to find out. `older CRD`: the controller, because the schema is one that lets all through."""


@dataclass(frozen=True)
class Label:
    """A person labels a node; None takes the label off."""

    node: str
    key: str
    value: str | None


@dataclass(frozen=True)
class Join:
    node: str


@dataclass(frozen=True)
class Leave:
    """Its machine is switched off, and its Node deleted."""

    node: str


Operation = Create | Delete | Edit | Revert | Wrong | Label | Join | Leave


@dataclass(frozen=True)
class Step:
    operation: Operation
    wait: float | None = None
    """Seconds until the next step; None: until all is settled, which is then looked at."""

    def __str__(self) -> str:
        return f"{self.operation}, then {'settle' if self.wait is None else f'{self.wait} s'}"
