"""The dead-man switch: the host takes a change back by itself when we die in it (design 6.9).

A POSIX shell script in the state directory, run by a transient systemd timer, needs nothing of our
image: only sh, sha256sum, mv, cat and systemctl. It acts only on files that still are as we wrote them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from pathlib import Path

from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused
from reconciler.hostconfig.state import Pending, State
from reconciler.hostconfig.writing import ABSENT, Trace, write_state
from reconciler.systemd.api import Systemd, SystemdError

UNIT = "runtime-reconciler-undo"
EARLY_UNIT = "runtime-reconciler-undo-early"
EARLY = "early"
"""The script's argument: act on a unit that is down, leave one that runs or starts."""
SCRIPT = "undo.sh"
_HEAD = """#!/bin/sh
# Takes a configuration change back that its maker did not live to prove. Written by runtime-reconciler.
if [ "$1" = early ]; then
  case "$(systemctl show --property=ActiveState,SubState {unit})" in
    *ActiveState=failed* | *ActiveState=inactive* | *SubState=auto-restart*) ;;
    *) exit 0 ;;
  esac
fi
exec 9>>{lock}
if command -v flock >/dev/null 2>&1; then flock -n 9 || exit 0; fi
undone=0
"""
_ONE = """if [ "$(sha256sum < {path} 2>/dev/null)" = "{after}  -" ]; then
  {back} && undone=1
fi
"""
_TAIL = """if [ "$undone" = 1 ]; then
  systemctl reset-failed {unit}
  systemctl restart {unit}
fi
"""


class DeadMan:
    """Arms and disarms the switch; its failure to arm is an error of systemd and stops the change."""

    def __init__(self, systemd: Systemd, host: HostRoot, state: State, state_dir: str, unit: str, trace: Trace) -> None:
        self._systemd, self._host, self._state = systemd, host, state
        self._state_dir, self._unit, self._trace = state_dir, unit, trace

    def prepare(self, pending: Pending) -> None:
        """Write the script and the copies that it moves into place. Blocks on the disk. Raises Refused(NotWritable)."""
        try:
            self._lay_down(pending)
        except OSError as error:
            raise Refused(Code.NOT_WRITABLE, f"{self._state.folder / SCRIPT}: {error.strerror}") from error

    def _lay_down(self, pending: Pending) -> None:
        unit = shlex.quote(self._unit)
        parts = [_HEAD.format(lock=shlex.quote(f"{self._state_dir}/lock"), unit=unit)]
        for number, file in enumerate(pending.files):
            if file.after == ABSENT:
                continue
            path = shlex.quote(file.path)
            if file.before == ABSENT:
                back = f"mv -f {path} {shlex.quote(f'{self._state_dir}/rejected-{number}')}"
            else:
                name = f"undo-{number}"
                self._copy(self._state.folder / name, file.before, self._host.local(file.path))
                copy = shlex.quote(f"{self._state_dir}/{name}")
                # a mount point cannot be renamed over
                back = f"[ -f {copy} ] && {{ mv -f {copy} {path} 2>/dev/null || cat {copy} > {path}; }}"
            parts.append(_ONE.format(path=path, after=file.after, back=back))
        parts.append(_TAIL.format(unit=unit))
        write_state(self._state.folder / SCRIPT, "".join(parts).encode(), 0o700)

    def _copy(self, path: Path, wanted: str, like: Path) -> None:
        data = self._state.bytes_of(wanted) or b""
        info = like.stat()  # of the file before and after the change alike
        write_state(path, data, stat.S_IMODE(info.st_mode))
        os.chown(path, info.st_uid, info.st_gid)

    async def arm(self, *, early: float, late: float) -> None:
        """Seconds from now. Raises SystemdError."""
        self._trace("arm")
        await self.disarm()
        script = ("/bin/sh", f"{self._state_dir}/{SCRIPT}")
        await self._systemd.arm(EARLY_UNIT, after=early, argv=(*script, EARLY))
        await self._systemd.arm(UNIT, after=late, argv=script)

    async def disarm(self) -> None:
        """Never raises: the script does nothing to files that are not as it expects."""
        for unit in (EARLY_UNIT, UNIT):
            with contextlib.suppress(SystemdError):
                await self._systemd.disarm(unit)
