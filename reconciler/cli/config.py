"""`reconciler config`: the engine of design section 6 as a host tool, offline too (contract in section 7)."""

from __future__ import annotations

import asyncio
import enum
import json
import posixpath
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from reconciler.api import names
from reconciler.api.noderuntime import NodeRuntime, RevisionData, revision_data
from reconciler.hostconfig import (
    BinaryDump,
    Code,
    Finding,
    HostCauses,
    HostConfig,
    HostRoot,
    LinuxProcesses,
    Outcome,
    Refused,
    Verdict,
    discover,
    installed,
    socket_of,
)
from reconciler.systemd.api import SystemdError

ASK_TIMEOUT = 10.0
"""Seconds for `containerd --version`."""
UNIT = "containerd.service"
"""Looked at when nobody listens on a CRI socket."""

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Look at or change containerd's configuration on a host."
)


class Output(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


Root = Annotated[Path, typer.Option("--root", help="Directory that stands for the host's /.")]
Config = Annotated[str, typer.Option("--config", help="containerd's --config, inside the root.")]
Runtime = Annotated[Path, typer.Option("--runtime", help="A NodeRuntime manifest.")]
Name = Annotated[str, typer.Option("--name", help="Name of the NodeRuntime.")]
Binary = Annotated[Path | None, typer.Option("--containerd", help="Binary to ask for its version and its dump.")]
Release = Annotated[str, typer.Option("--containerd-version", help="Version, instead of a binary.")]
StateDir = Annotated[str, typer.Option("--state-dir", help="Our state on the host, inside the root.")]
Restart = Annotated[bool | None, typer.Option("--restart/--no-restart", help="Default: only when the root is /.")]
Form = Annotated[Output, typer.Option("--output")]

_ROOT = Path("/")


@app.command()
def plan(
    runtime: Runtime,
    root: Root = _ROOT,
    config: Config = "",
    containerd: Binary = None,
    containerd_version: Release = "",
    state_dir: StateDir = names.HOST_STATE_DIR,
    restart: Restart = None,
    output: Form = Output.TEXT,
) -> None:
    """Show what apply would do; writes nothing."""
    name, data = _manifest(runtime)
    engine = _Engine(root, config, containerd, containerd_version, state_dir, restart)
    _finish(engine.run(lambda host: _now(host.plan(name, data)), online=False), output)


@app.command()
def apply(
    runtime: Runtime,
    root: Root = _ROOT,
    config: Config = "",
    containerd: Binary = None,
    containerd_version: Release = "",
    state_dir: StateDir = names.HOST_STATE_DIR,
    restart: Restart = None,
    output: Form = Output.TEXT,
) -> None:
    """Write the handlers of a NodeRuntime, restart once, prove that CRI serves them."""
    name, data = _manifest(runtime)
    engine = _Engine(root, config, containerd, containerd_version, state_dir, restart)
    _finish(engine.run(lambda host: host.apply(name, "", data)), output)


@app.command()
def remove(
    name: Name,
    root: Root = _ROOT,
    config: Config = "",
    containerd: Binary = None,
    containerd_version: Release = "",
    state_dir: StateDir = names.HOST_STATE_DIR,
    restart: Restart = None,
    output: Form = Output.TEXT,
) -> None:
    """Take out exactly what apply added."""
    engine = _Engine(root, config, containerd, containerd_version, state_dir, restart)
    _finish(engine.run(lambda host: host.remove(name)), output)


@app.command()
def check(
    root: Root = _ROOT,
    config: Config = "",
    containerd: Binary = None,
    containerd_version: Release = "",
    state_dir: StateDir = names.HOST_STATE_DIR,
    restart: Restart = None,
    output: Form = Output.TEXT,
) -> None:
    """Would the configuration start and serve CRI? Names every finding; writes nothing."""
    engine = _Engine(root, config, containerd, containerd_version, state_dir, restart)
    _finish(engine.run(lambda host: _now(_checked(host)), online=False), output)


@app.command()
def repair(
    root: Root = _ROOT,
    config: Config = "",
    containerd: Binary = None,
    containerd_version: Release = "",
    state_dir: StateDir = names.HOST_STATE_DIR,
    restart: Restart = None,
    output: Form = Output.TEXT,
) -> None:
    """Mend what is known to be mendable."""
    engine = _Engine(root, config, containerd, containerd_version, state_dir, restart)
    _finish(engine.run(lambda host: host.repair()), output)


class _Engine:
    """The options that say which host, and whether its daemon is there to be restarted."""

    def __init__(
        self, root: Path, config: str, binary: Path | None, release: str, state_dir: str, restart: bool | None
    ) -> None:
        if binary is not None and release:
            raise typer.BadParameter("give --containerd or --containerd-version, not both")
        self._root, self._config, self._state_dir = root.absolute(), config, state_dir
        self._binary, self._release = binary, release
        self._restart = self._root == Path("/") if restart is None else restart

    def run(self, operation: Callable[[HostConfig], Any], *, online: bool = True) -> Outcome:
        return asyncio.run(self._run(operation, online=online and self._restart))

    async def _run(self, operation: Callable[[HostConfig], Any], *, online: bool) -> Outcome:
        try:
            return await (self._online(operation) if online else self._offline(operation))
        except Refused as error:
            return error.outcome()

    async def _offline(self, operation: Callable[[HostConfig], Any]) -> Outcome:
        binary, config = self._binary, self._config
        if binary is None and not self._release:
            root = HostRoot(self._root)
            found, its_config = installed(root, UNIT)
            binary, config = root.local(found), config or its_config
        version = self._release if binary is None else _ask_version(binary)
        host = HostConfig(self._root, config, version, self._state_dir, dump=self._dump(binary))
        return await self._outcome(operation, host)

    async def _online(self, operation: Callable[[HostConfig], Any]) -> Outcome:
        """With the daemon that owns the CRI socket; options go before what is found."""
        from reconciler.cri.client import GrpcCri
        from reconciler.systemd.client import DbusSystemd

        root = HostRoot(self._root)
        socket = socket_of(root)
        systemd = DbusSystemd(f"unix:path={self._root / 'run/dbus/system_bus_socket'}")
        cri = GrpcCri(str(root.local(socket)))
        try:
            found = await discover(systemd, LinuxProcesses(root), root, socket=socket, unit=UNIT)
            binary = self._binary or (None if self._release else root.local(found.binary))
            host = HostConfig(
                self._root,
                self._config or found.config,
                self._release or (_ask_version(self._binary) if self._binary else found.version),
                self._state_dir,
                systemd=systemd,
                cri=cri,
                unit=found.unit,
                dump=self._dump(binary),
                outside=HostCauses(root, posixpath.dirname(socket)),
            )
            return await self._outcome(operation, host)
        except SystemdError as error:
            raise Refused(Code.BUSY, f"systemd cannot be asked: {error}") from error
        finally:
            cri.close()
            await systemd.close()

    def _dump(self, binary: Path | None) -> BinaryDump | None:
        return None if binary is None else BinaryDump(self._root, binary)

    async def _outcome(self, operation: Callable[[HostConfig], Any], host: HostConfig) -> Outcome:
        outcome = await operation(host)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"not an outcome: {outcome!r}")
        return outcome


async def _now(outcome: Outcome) -> Outcome:
    return outcome


def _checked(host: HostConfig) -> Outcome:
    findings = host.check()
    if findings.loads and findings.serves:
        return Outcome(Verdict.OK, handlers=findings.handlers, findings=findings.findings)
    first = findings.findings[0]
    return Outcome(Verdict.BROKEN, first.code, first.message, findings=findings.findings)


def _manifest(path: Path) -> tuple[str, RevisionData]:
    try:
        runtime = msgspec.yaml.decode(path.read_bytes(), type=NodeRuntime)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    if not runtime.metadata.name:
        raise typer.BadParameter(f"{path}: metadata.name is missing")
    return runtime.metadata.name, revision_data(runtime.spec)


def _ask_version(binary: Path) -> str:
    """The third word of `containerd --version`: `containerd github.com/… v1.7.34 …`."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=ASK_TIMEOUT, check=True)
        return done.stdout.split()[2]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        message = f"{binary} cannot be asked for its version ({error}); give --containerd-version"
        raise typer.BadParameter(message) from error


def _finish(outcome: Outcome, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(outcome.document(), ensure_ascii=False))
    else:
        typer.echo(_text(outcome), nl=False)
    raise typer.Exit(0 if outcome.good else 1)


def _finding(finding: Finding) -> str:
    where = f"{finding.path}:{finding.line}" if finding.line else finding.path
    return f"{finding.code.value} {where}: {finding.message}{' (`repair` mends it)' if finding.repairable else ''}"


def _text(outcome: Outcome) -> str:
    lines = [f"{outcome.verdict.value}{f' ({outcome.reason.value})' if outcome.reason else ''}: {outcome.message}"]
    lines[0] = lines[0].removesuffix(": ")
    lines += [f"  {_finding(finding)}" for finding in outcome.findings]
    lines += [change.diff or f"{change.action} {change.path}" for change in outcome.files]
    if outcome.handlers:
        lines.append(f"handlers: {', '.join(outcome.handlers)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    app()
