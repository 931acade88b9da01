"""Asks a containerd binary what it makes of the files, without starting it: `containerd config dump`.

The binary sees the host's root with the change laid over it (an overlay in a mount namespace of its own),
so that every import is resolved as it will be; nothing on the host is written. Needs root and Linux.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from reconciler.hostconfig.dialects import Table
from reconciler.hostconfig.effective import DEFAULT_CONFIG
from reconciler.hostconfig.hostroot import HostRoot

TIMEOUT = 20.0
"""Seconds for one question; 0.1 is usual."""
UNMOUNTED = 64
"""Exit status of the script when the root cannot be laid out."""

Overlay = Mapping[str, bytes | None]
Dump = Callable[[str, Overlay], Table]
"""`--config` ("" for the default) and a change → the effective configuration. Raises DumpRefused, DumpUnavailable."""

_REAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"})
"""Filesystems that files of a configuration are on; an overlay does not show what is mounted below it."""
_NOT_BELOW = ("/proc", "/sys", "/dev", "/run", "/tmp", "/snap")

_ENCLOSE = f"""
work=$1 root=$2 binary=$3; shift 3
lay() {{
  mkdir "$work/new" || return 1
  number=0
  while read -r folder; do
    number=$((number + 1)); upper=$work/$number
    mkdir -p "$upper/work" "$upper/upper" || return 1
    mount -t overlay overlay -o "lowerdir=$root$folder,upperdir=$upper/upper,workdir=$upper/work" "$work/new$folder" ||
      return 1
  done < "$work.mounts"
  cd "$work/new" && cp -a "$work.change/." . || return 1
  while read -r gone; do rm -f ".$gone" || return 1; done < "$work.gone"
  for folder in usr bin sbin lib lib32 lib64 proc dev; do
    if [ -L "/$folder" ]; then [ -e "$folder" ] || cp -P "/$folder" .
    elif [ -d "/$folder" ] && [ ! -e "$folder/." ]; then mkdir "$folder" && mount --rbind "/$folder" "$folder"; fi ||
      return 1
  done
  touch .containerd && mount --bind "$binary" .containerd
}}
mount -t tmpfs none "$work" || exit {UNMOUNTED}
lay || exit {UNMOUNTED}
exec chroot . /.containerd "$@"
"""


class DumpRefused(Exception):
    """The binary does not load the files; the message is its own."""


class DumpUnavailable(Exception):
    """The binary could not be asked."""


class BinaryDump:
    """`Dump` by `binary` (a path of the caller, not of the root) for the files below `root`."""

    def __init__(self, root: Path, binary: Path) -> None:
        self._host, self._binary = HostRoot(root.absolute()), binary.absolute()

    def __call__(self, config_path: str, overlay: Overlay) -> Table:
        """Raises DumpRefused, DumpUnavailable."""
        if os.geteuid() != 0:
            raise DumpUnavailable("only root can lay out a root for it")
        main = self._host.real(config_path or DEFAULT_CONFIG)
        there = overlay[main] is not None if main in overlay else self._host.exists(main)
        flags = ["--config", config_path] if config_path else []
        with tempfile.TemporaryDirectory(prefix="runtime-reconciler-") as folder:
            argv = self.argv(Path(folder), overlay)
            return self._ask([*argv, *flags, "config", "dump" if there or config_path else "default"])

    def argv(self, folder: Path, overlay: Overlay) -> list[str]:
        """The command that runs the binary in its root, to be followed by its arguments; `folder` is an empty one."""
        work = folder / "root"
        work.mkdir()
        folders, files = self._mounts()
        _write(Path(f"{work}.change"), {**files, **overlay})
        gone = [path for path, data in overlay.items() if data is None]
        Path(f"{work}.gone").write_text("".join(f"{path}\n" for path in gone))
        Path(f"{work}.mounts").write_text("/\n" + "".join(f"{path}\n" for path in folders))
        words = (str(work), str(self._host.root), str(self._binary))
        return ["unshare", "--mount", "sh", "-c", _ENCLOSE, "sh", *words]

    def _mounts(self) -> tuple[list[str], dict[str, bytes]]:
        """What is mounted below the root: directories, parents first, and files with their bytes."""
        root = str(self._host.root).rstrip("/")
        found = set()
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            place = before.split()[4].replace("\\040", " ")
            below = place.removeprefix(root) if place.startswith(f"{root}/") else ""
            if below not in ("", "/") and after.split()[0] in _REAL and not below.startswith(_NOT_BELOW):
                found.add(below)
        folders = sorted(path for path in found if self._host.is_dir(path))
        files = (path for path in found if self._host.local(path).is_file())
        return folders, {path: self._host.read(path) for path in files}

    def _ask(self, argv: list[str]) -> Table:
        try:
            done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DumpUnavailable(str(error)) from error
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode == UNMOUNTED or done.returncode in (126, 127):
            raise DumpUnavailable(said[-300:])
        if done.returncode:
            raise DumpRefused(said[-300:] or f"exit status {done.returncode}")
        try:
            return tomllib.loads(done.stdout.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DumpUnavailable(f"its answer is not TOML: {error}") from error


def _write(folder: Path, overlay: Overlay) -> None:
    folder.mkdir()
    for path, data in overlay.items():
        if data is not None:
            local = folder / path.lstrip("/")
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(data)
