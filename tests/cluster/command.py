"""Run a program, with a deadline and an error that says what it said."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class CommandFailed(RuntimeError):
    """A program ended with another code than 0, or did not end in time."""


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
    check: bool = True,
) -> str:
    """Output of `argv`. Raises CommandFailed with the tail of its error output, unless `check` is false."""
    words = [str(word) for word in argv]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            words,
            input=data,
            capture_output=True,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(words)[:200]}: not done after {timeout:.0f} s") from error
    if check and done.returncode != 0:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip()[-1500:]
        raise CommandFailed(f"{' '.join(words)[:300]}: exit {done.returncode}\n{tail}")
    return done.stdout.decode(errors="replace")


class Daemon:
    """A long-running program with a pid file and a log; known again by a later run of the harness."""

    def __init__(self, name: str, run_dir: Path) -> None:
        self.name = name
        self.log = run_dir / f"{name}.log"
        self._pid_file = run_dir / f"{name}.pid"

    def pid(self) -> int | None:
        """Its process id, or None when it does not run."""
        try:
            pid, started = self._pid_file.read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _start_time(int(pid)) == started else None

    def start(
        self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        """Start it in a session of its own, unless it runs already."""
        if self.pid() is not None:
            return
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
        self._pid_file.write_text(f"{process.pid} {_start_time(process.pid)}")

    def kill(self, signum: int = signal.SIGTERM, *, grace: float = 10.0) -> None:
        """End it: `signum`, and SIGKILL after `grace` seconds. Nothing to do when it does not run."""
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, signum)
        wait_until(lambda: self.pid() is None, grace, raises=False)
        if self.pid() is not None:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self.pid() is None, 5.0, raises=False)
        self._pid_file.unlink(missing_ok=True)

    def tail(self, lines: int = 15) -> str:
        """The end of its log, for an error message."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"


def _start_time(pid: int) -> str:
    """Field 22 of /proc/PID/stat: tells a process from a later one of the same id. Empty for a zombie or none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def wait_until(condition: object, timeout: float, *, every: float = 0.1, what: str = "", raises: bool = True) -> bool:
    """Poll `condition()` until it is true. Raises TimeoutError naming `what` after `timeout` seconds."""
    assert callable(condition)
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            if raises:
                raise TimeoutError(f"{what or 'a condition'}: not within {timeout:.0f} s")
            return False
        time.sleep(every)
    return True
