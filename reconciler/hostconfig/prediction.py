"""What a change would make of the effective configuration: exactly our handlers, or a refusal (design 6.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.hostconfig import cri_section
from reconciler.hostconfig.dialects import CRI_IMAGES, Table, table
from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.model import Code, Finding, Findings, Refused
from reconciler.hostconfig.snapshot import Snapshot


@dataclass(frozen=True)
class Ours:
    """What the change adds."""

    handlers: frozenset[str] = frozenset()
    proxies: frozenset[str] = frozenset()


def predict(snapshot: Snapshot, base: Effective, ours: Ours, now: Findings) -> Findings:
    """What would be served. Raises Refused unless it serves and differs from `base` by exactly `ours`."""
    effective = snapshot.effective()
    then = snapshot.examine(effective)
    if not then.loads:
        raise Refused(*_misfit(base, then.findings[0]), now.findings)
    if not then.serves:
        first = then.findings[0]
        code = first.code if ours.handlers else Code.HANDLER_IN_USE
        raise Refused(code, f"the result would not serve: {first.message}", now.findings)
    if _others(base, ours) != _others(effective, ours):
        raise Refused(Code.UNSUPPORTED_SYNTAX, "the edit would change settings of others", now.findings)
    if missing := ours.handlers - set(then.handlers):
        raise Refused(Code.SHADOWED_BY_IMPORT, f"handlers {sorted(missing)} would not be in force", now.findings)
    return then


def _misfit(base: Effective, finding: Finding) -> tuple[Code, str]:
    """Why our tables could not be added to files that are fine without them."""
    lines = (line for file in base.files for line in file.data.splitlines())
    inline = any(b"plugins" in line and b"{" in line for line in lines)
    code = Code.INLINE_PLUGINS if inline else Code.UNSUPPORTED_SYNTAX
    return code, f"our tables cannot be added: {finding.message}"


def _others(effective: Effective, ours: Ours) -> dict[str, Any]:
    """The configuration without what is ours, and without what is empty then: an empty table says nothing."""
    document = {key: value for key, value in effective.document.items() if key not in ("imports", "version")}
    if effective.containerd.one:
        document["version"] = effective.version if effective.exists else 2
    held = table(document, "proxy_plugins")
    document["proxy_plugins"] = {name: one for name, one in held.items() if name not in ours.proxies}
    plugins = dict(table(document, "plugins"))
    runtime_id = cri_section.runtime_id(effective)
    section = dict(table(plugins, runtime_id))
    containerd = dict(table(section, "containerd"))
    containerd["runtimes"] = _foreign(table(containerd, "runtimes"), ours.handlers)
    plugins[runtime_id] = {**section, "containerd": containerd}
    images = table(plugins, CRI_IMAGES)
    platforms = table(images, "runtime_platforms")
    kept = {name: one for name, one in platforms.items() if name not in ours.handlers}
    plugins[CRI_IMAGES] = {**images, "runtime_platforms": kept}
    document["plugins"] = plugins
    return full(document)


def _foreign(runtimes: Mapping[str, Any], handlers: frozenset[str]) -> Table:
    """Without ours, and without a `runc` that only says what the built-in one says."""
    built_in = {"runtime_type": cri_section.RUNC_TYPE}
    return {
        name: one
        for name, one in runtimes.items()
        if name not in handlers and (name, one) != (cri_section.RUNC, built_in)
    }


def full(value: Table) -> Table:
    """`value` without empty tables."""
    kept = {key: full(one) if isinstance(one, dict) else one for key, one in value.items()}
    return {key: one for key, one in kept.items() if one != {}}
