"""A cgroup tree of its own for each node, as a machine has one.

In one tree, two systemds make and remove each other's cgroups: a unit that both start at the same moment fails with
`219/CGROUP`, on most tries, and two kubelets delete each other's pods.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KINDS = ("cgroup", "cgroup2")
_EVERYWHERE = frozenset({"rw", "ro", "relatime", "nosuid", "nodev", "noexec"})
"""Options of a mount that say nothing of its controllers."""
_COPIED = ("cpuset.cpus", "cpuset.mems")
"""Empty in a new cgroup of version 1, and nothing may enter it as long as they are."""


@dataclass(frozen=True)
class _Hierarchy:
    """One mounted tree: each controller has its own in version 1, all share one in version 2."""

    point: str
    kind: str
    options: str

    def tree(self, name: str) -> Path:
        return Path(self.point) / f"rr-{name}"


def inside(name: str, argv: list[str | Path]) -> list[str]:
    """`argv` so that the program takes the tree of node `name` for the whole of `/sys/fs/cgroup`; makes the tree."""
    hierarchies = list(_hierarchies())
    for each in hierarchies:
        _make(each, name)
    enter = [f"echo $$ > {shlex.quote(str(each.tree(name) / 'cgroup.procs'))}" for each in hierarchies]
    remount = [part for each in hierarchies for part in _remount(each)]
    first = " && ".join([*enter, 'exec unshare --cgroup --mount /bin/sh -c "$0" "$@"'])
    second = " && ".join([*remount, 'exec "$0" "$@"'])
    return ["/bin/sh", "-c", first, second, *map(str, argv)]


def remove(name: str) -> None:
    """Take the tree of a node away; one with a process in it stays."""
    for each in _hierarchies():
        tree = each.tree(name)
        for folder in sorted((path for path in tree.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):
                folder.rmdir()
        with suppress(OSError):
            tree.rmdir()


def _hierarchies() -> Iterator[_Hierarchy]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind in _KINDS:
            yield _Hierarchy(point, kind, ",".join(word for word in options.split(",") if word not in _EVERYWHERE))


def _make(each: _Hierarchy, name: str) -> None:
    own = each.tree(name)
    own.mkdir(exist_ok=True)
    for file in _COPIED:
        if (own / file).exists() and not (own / file).read_text().strip():
            (own / file).write_text((Path(each.point) / file).read_text())


def _remount(each: _Hierarchy) -> list[str]:
    """Away first: the kernel refuses a second mount of one hierarchy on the same point."""
    point, options = shlex.quote(each.point), f"-o {shlex.quote(each.options)} " if each.options else ""
    return [f"umount {point}", f"mount -t {each.kind} {options}{each.kind} {point}"]
