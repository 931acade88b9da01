"""The second opinion on a prediction: what the host's own binary dumps (design 6.6).

A dump is necessary and not sufficient: it sees syntax, types and versions, not what CRI refuses later.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from reconciler.hostconfig.dialects import CRI_IMAGES, CRI_RUNTIME, CRI_V2, Table, table
from reconciler.hostconfig.dump import Dump, DumpRefused, DumpUnavailable, Overlay
from reconciler.hostconfig.model import Code, Finding, Findings, Refused

log = logging.getLogger(__name__)

_SAYS_NOTHING: tuple[object, ...] = ("", 0, False, [], {})
_DEFAULT_SANDBOXER = (("sandboxer", "podsandbox"), ("sandbox_mode", "podsandbox"))


def examine(dump: Dump, config_path: str, found: Findings, main: str) -> Findings:
    """`found` with what only the binary knows: that it refuses the files, or loads what our parser does not."""
    try:
        dump(config_path, {})
    except DumpUnavailable as error:
        log.warning("containerd could not be asked for a dump, the model decides alone: %s", error)
        return found
    except DumpRefused as error:
        if not found.loads:
            return found
        fault = Finding(Code.INVALID_TOML, main, f"containerd refuses it: {error}")
        return replace(found, loads=False, serves=False, handlers=(), findings=(fault, *found.findings))
    first = next(iter(found.findings), None)
    if found.loads or first is None or first.code is not Code.INVALID_TOML:
        return found
    text = f"containerd loads it, our parser does not, so it is not touched: {first.message}"
    fault = replace(first, code=Code.UNSUPPORTED_SYNTAX, message=text, repairable=False)
    return replace(found, findings=(fault, *found.findings[1:]))


def compare(
    dump: Dump, config_path: str, now: Overlay, change: Overlay, handlers: tuple[str, ...], mine: frozenset[str]
) -> None:
    """Raises Refused unless `change` makes the dump differ from `now` by `mine`, what we add or take, and nothing else.

    `handlers`: what the model says will be served.
    """
    try:
        before, after = _dump(dump, config_path, now), _dump(dump, config_path, change)
    except DumpUnavailable as error:
        log.warning("containerd could not be asked for a dump, the model decides alone: %s", error)
        return
    if isinstance(after, str):
        raise Refused(Code.UNSUPPORTED_SYNTAX, f"containerd would refuse the result: {after}")
    served = set(_runtimes(after))
    if served != set(handlers):
        text = f"containerd would have the handlers {sorted(served)}, not {sorted(handlers)}"
        raise Refused(Code.SHADOWED_BY_IMPORT, text)
    if isinstance(before, str):
        return
    proxies = _ours(before, after)
    if _others(before, mine, proxies) != _others(after, mine, proxies):
        raise Refused(Code.UNSUPPORTED_SYNTAX, "by containerd's own dump the edit would change settings of others")


def _dump(dump: Dump, config_path: str, change: Overlay) -> Table | str:
    """The dump, or why there is none. Raises DumpUnavailable."""
    try:
        return dump(config_path, change)
    except DumpRefused as error:
        return str(error)


def _runtimes(document: Table) -> Table:
    plugins = table(document, "plugins")
    name = CRI_RUNTIME if CRI_RUNTIME in plugins else CRI_V2
    return table(table(table(plugins, name), "containerd"), "runtimes")


def _ours(before: Table, after: Table) -> frozenset[str]:
    """Snapshotters that only one of the two has."""
    return frozenset(table(before, "proxy_plugins").keys() ^ table(after, "proxy_plugins").keys())


def _others(document: Table, mine: frozenset[str], proxies: frozenset[str]) -> Table:
    out = {key: value for key, value in document.items() if key not in ("imports", "version")}
    out["proxy_plugins"] = _less(table(out, "proxy_plugins"), proxies)
    plugins = dict(table(out, "plugins"))
    for name in (CRI_RUNTIME, CRI_V2):
        section = table(plugins, name)
        containerd = table(section, "containerd")
        runtimes = _less(table(containerd, "runtimes"), mine)
        plugins[name] = {**section, "containerd": {**containerd, "runtimes": runtimes}}
    images = table(plugins, CRI_IMAGES)
    plugins[CRI_IMAGES] = {**images, "runtime_platforms": _less(table(images, "runtime_platforms"), mine)}
    return _telling({**out, "plugins": plugins})


def _less(entries: Table, names: frozenset[str]) -> Table:
    return {name: entry for name, entry in entries.items() if name not in names}


def _telling(value: Table) -> Table:
    """Without zero values and what means the same as nothing: a written default is no difference."""
    kept = {key: _telling(one) if isinstance(one, dict) else one for key, one in value.items()}
    return {key: one for key, one in kept.items() if one not in _SAYS_NOTHING and (key, one) not in _DEFAULT_SANDBOXER}
