"""Writes to the API, from the API server's audit log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.cluster.controlplane import AUDIT_LOG

PRODUCT = "system:serviceaccount:runtime-reconciler:"
_NOT_COUNTED = {"events", "leases"}


@dataclass(frozen=True)
class Write:
    """One write of the product that the API server carried out or refused."""

    at: float
    user: str
    verb: str
    resource: str
    name: str
    code: int
    body: Any = None


def position() -> int:
    """Where the log ends now: a mark to read from later."""
    return AUDIT_LOG.stat().st_size if AUDIT_LOG.exists() else 0


def writes(since: int, *, user_prefix: str = PRODUCT) -> list[Write]:
    """Writes by the users of `user_prefix` from the mark `since` on."""
    with AUDIT_LOG.open("rb") as log:
        log.seek(since)
        entries = [json.loads(line) for line in log.read().splitlines() if line.endswith(b"}")]
    return [_write(entry) for entry in entries if entry["user"]["username"].startswith(user_prefix)]


def counted(found: list[Write]) -> dict[str, int]:
    """How many writes of each kind, Events and Leases apart, by `verb resource`."""
    kinds = [f"{w.verb} {w.resource}" for w in found if w.resource.split("/")[0] not in _NOT_COUNTED]
    return dict(sorted(Counter(kinds).items()))


def _write(entry: dict[str, Any]) -> Write:
    target = entry.get("objectRef", {})
    resource = "/".join(filter(None, (target.get("resource", ""), target.get("subresource", ""))))
    return Write(
        at=datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(),
        user=entry["user"]["username"].removeprefix(PRODUCT),
        verb=entry["verb"],
        resource=resource,
        name=target.get("name", ""),
        code=entry.get("responseStatus", {}).get("code", 0),
        body=entry.get("requestObject"),
    )
