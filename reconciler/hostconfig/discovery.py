"""Finds the containerd of this host: the one that owns the CRI socket, its unit, its files, what will start next.

Never by PATH (design 6.1). What the host is asked is behind `Processes`; `LinuxProcesses` asks the real one.
"""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from typing import Protocol

from reconciler.hostconfig.distribution import KINDS, PLAIN, Kind, name_of, refuse_unsupported
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused
from reconciler.hostconfig.unitfile import exec_start
from reconciler.hostconfig.version import parse, supported
from reconciler.systemd.api import Systemd, UnitState

KUBELET = "kubelet.service"
BINARY = "/usr/bin/containerd"
"""Of packages."""


@dataclass(frozen=True)
class Process:
    """One process of the host."""

    pid: int
    argv: tuple[str, ...]
    exe: str
    """Path on the host; one that was replaced since ends in ` (deleted)`."""
    unit: str
    """The systemd unit that it belongs to, "" for none."""


class Processes(Protocol):
    """What discovery asks of the host. Every path is the host's."""

    def owner(self, socket: str) -> Process | None:
        """The process that listens on a unix socket; None when nobody does."""

    def same_file(self, pid: int, binary: str) -> bool:
        """True while the process `pid` runs what lies at `binary` now."""

    async def version(self, binary: str) -> str:
        """What `binary --version` prints, called as `containerd`. Raises Refused(UnsupportedVersion)."""


@dataclass(frozen=True)
class Daemon:
    """The containerd of a host."""

    unit: str
    binary: str
    """Path on the host of what the next start runs."""
    config: str
    """Its `--config`, "" for the default."""
    version: str
    """Of that binary."""
    distribution: str
    pid: int | None
    """The process that serves CRI now."""
    notes: tuple[str, ...] = ()
    """What a person should know before a restart."""


async def discover(systemd: Systemd, processes: Processes, host: HostRoot, *, socket: str, unit: str) -> Daemon:
    """`unit` is the one to look at when nobody listens on `socket`.

    Raises Refused with a reason for what is not supported, SystemdError.
    """
    refuse_unsupported(host)
    owner = await asyncio.to_thread(processes.owner, socket)
    state, name, kind = await _unit(systemd, owner, unit)
    if owner is not None and not _is_containerd(owner, kind):
        text = f"{socket} belongs to {owner.exe} of {owner.unit or 'no unit'}, which is not containerd"
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
    if kind.restarts_itself:
        text = f"{kind.name} restarts containerd by itself: use `reconciler config apply --no-restart` on this host"
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
    binary, config = _next_start(state, name, kind, owner)
    said = await processes.version(binary)
    supported(parse(said))
    notes = []
    if owner is not None and not processes.same_file(owner.pid, binary):
        notes.append(f"{binary} was replaced since containerd started: the next restart starts {said}")
    if owner is not None and not kind.wrapped and config_of(owner.argv) != config:
        notes.append(
            f"containerd runs with --config {config_of(owner.argv) or '(default)'}, {name} has {config or 'none'}"
        )
    notes += _restarts_with(state, name, kind)
    return Daemon(name, binary, config, said, name_of(host, kind), owner.pid if owner else None, tuple(notes))


def installed(host: HostRoot, unit: str) -> tuple[str, str]:
    """Binary and `--config` of the next start by the files of `unit`; the usual binary where they say nothing.

    For a host whose systemd cannot be asked. Raises Refused for a distribution whose unit starts containerd by itself.
    """
    argv = exec_start(host, unit)
    if argv:
        return argv[0], config_of(argv)
    if not host.exists(BINARY):
        for kind in KINDS:
            if any(exec_start(host, name) for name in kind.units):
                text = f"{kind.name} brings its own containerd: give --containerd-version, and --config {kind.config}"
                raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
    return BINARY, ""


async def _unit(systemd: Systemd, owner: Process | None, default: str) -> tuple[UnitState, str, Kind]:
    """The unit of the owner; without one the default, or else the unit of a distribution that is there."""
    if owner is not None:
        if not owner.unit:
            text = f"{owner.exe} (process {owner.pid}) belongs to no systemd unit: who would start it again?"
            raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
        return await systemd.unit(owner.unit), owner.unit, _kind(owner.unit)
    for name in (default, *(one for kind in KINDS for one in kind.units)):
        state = await systemd.unit(name)
        if state.load_state == "loaded":
            return state, name, _kind(name)
    text = f"nobody listens on the CRI socket and there is no unit {default}: name the one of containerd with --unit"
    raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)


def _kind(unit: str) -> Kind:
    return next((kind for kind in KINDS if unit in kind.units), PLAIN)


def _is_containerd(owner: Process, kind: Kind) -> bool:
    """By argv[0]: on k3s containerd is one program with others."""
    named = posixpath.basename(owner.argv[0]) if owner.argv else ""
    return named == "containerd" or (kind is PLAIN and posixpath.basename(owner.exe).startswith("containerd"))


def _next_start(state: UnitState, name: str, kind: Kind, owner: Process | None) -> tuple[str, str]:
    """Binary and `--config` of the next start: the unit's own command, or that of a child that it starts."""
    if not kind.wrapped:
        if state.load_state != "loaded" or not state.exec_start:
            text = (
                f"unit {name} is {state.load_state} and has no command: only a containerd run by systemd is supported"
            )
            raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
        return state.exec_start[0], config_of(state.exec_start)
    if owner is None:
        text = f"{name} starts containerd by itself and does not run: start it first, then it can be looked at"
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
    return owner.exe.removesuffix(" (deleted)"), config_of(owner.argv) or kind.config


def config_of(argv: tuple[str, ...]) -> str:
    """The value of `--config` or `-c`, "" without one."""
    for place, word in enumerate(argv):
        if word in ("--config", "-c"):
            return argv[place + 1] if place + 1 < len(argv) else ""
        for prefix in ("--config=", "-c="):
            if word.startswith(prefix):
                return word.removeprefix(prefix)
    return ""


def _restarts_with(state: UnitState, name: str, kind: Kind) -> list[str]:
    """Raises Refused when kubelet restarts with containerd: pods would be killed that no longer match their node."""
    if kind.runs_kubelet:
        return [f"{name} runs kubelet too: it restarts with containerd"]
    if KUBELET in state.required_by:
        text = f"{KUBELET} requires {name} and would restart with it: take Requires= or BindsTo= out of {KUBELET}"
        raise Refused(Code.UNSUPPORTED_DISTRIBUTION, text)
    return [f"{one} restarts with {name}" for one in state.required_by]
