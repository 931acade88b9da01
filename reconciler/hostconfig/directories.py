"""Directories that we had to make for a file of ours: they go again when we made them and nothing is in them.

The journal names them; a mark on the directory itself (an extended attribute, where the filesystem has them) says
so as well, for a host whose state directory was lost.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterable
from pathlib import Path

from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.writing import MADE, Trace, sync_directory


def missing(host: HostRoot, files: Iterable[str]) -> tuple[str, ...]:
    """The directories above `files` (real paths) that are not there, parents first."""
    found: set[str] = set()
    for file in files:
        folder = posixpath.dirname(file)
        while not host.exists(folder):
            found.add(folder)
            folder = posixpath.dirname(folder)
    return tuple(sorted(found))


def tidy(host: HostRoot, recorded: Iterable[str], emptied: Iterable[str], trace: Trace) -> tuple[str, ...]:
    """Delete those that we made and that are empty; the answer is what stays of `recorded`.

    `emptied`: directories that lost a file of ours; they and those above them go if they bear our mark.
    """
    ours = set(recorded)
    for folder in emptied:
        while folder not in ours and _marked(host.local(folder)):
            ours.add(folder)
            folder = posixpath.dirname(folder)
    for folder in sorted(ours, reverse=True):
        local = host.local(folder)
        if local.is_dir() and not any(local.iterdir()):
            trace(f"rmdir {folder}")
            with contextlib.suppress(OSError):  # a mount point, or somebody is quicker: it is theirs
                local.rmdir()
                sync_directory(local.parent)
    return tuple(folder for folder in sorted(recorded) if host.is_dir(folder))


def _marked(local: Path) -> bool:
    try:
        return os.getxattr(local, MADE) == b"1"
    except OSError:
        return False
