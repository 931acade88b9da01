"""The command of a unit as its files below a root say: for a host whose systemd cannot be asked (an image, a disk)."""

from __future__ import annotations

import posixpath
import shlex

from reconciler.hostconfig.hostroot import HostRoot

FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""The first one that has a file of a name wins (systemd.unit(5))."""
PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
"""Where systemd looks for a command without a path."""
_PREFIXES = "@-:+!|"


def exec_start(host: HostRoot, unit: str) -> tuple[str, ...]:
    """argv of the first `ExecStart` in force; empty where there is no such unit, or none that can be read."""
    commands: list[str] = []
    for text in (_fragment(host, unit), *_drop_ins(host, unit)):
        for value in _values(text):
            commands = [*commands, value] if value else []
    try:
        argv = shlex.split(commands[0].lstrip(_PREFIXES)) if commands else []
    except ValueError:
        return ()
    return (_program(host, argv[0]), *argv[1:]) if argv else ()


def _fragment(host: HostRoot, unit: str) -> str:
    return next((_text(host, f"{folder}/{unit}") for folder in FOLDERS if host.exists(f"{folder}/{unit}")), "")


def _drop_ins(host: HostRoot, unit: str) -> list[str]:
    """In the order of their names, whatever directory they are in."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for path in host.glob(f"{folder}/{unit}.d/*.conf"):
            found.setdefault(posixpath.basename(path), path)
    return [_text(host, found[name]) for name in sorted(found)]


def _text(host: HostRoot, path: str) -> str:
    try:
        return host.read(path).decode(errors="replace")
    except OSError:
        return ""


def _values(text: str) -> list[str]:
    """Of each `ExecStart=` in `[Service]`."""
    values, section = [], ""
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped
        key, equals, value = stripped.partition("=")
        if section == "[Service]" and equals and key.rstrip() == "ExecStart":
            values.append(value.strip())
    return values


def _program(host: HostRoot, name: str) -> str:
    if name.startswith("/"):
        return name
    return next((path for folder in PROGRAMS if host.exists(path := f"{folder}/{name}")), name)
