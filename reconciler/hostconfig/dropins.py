"""Where our tables go on containerd 2.x: into a drop-in of our own (design 6.3).

It lies in a directory that an import written in a loaded file covers, else in `conf.d` beside the main
file, which then gets one import: a pattern for our prefix only, so that it brings nobody else's file to
life and every order of events is harmless (a pattern without files starts, a missing path does not).
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator

from reconciler.hostconfig import blocks, imports_list
from reconciler.hostconfig.distribution import is_generated, no_place
from reconciler.hostconfig.effective import Effective
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.mending import OUR_PREFIX
from reconciler.hostconfig.model import Code, Refused
from reconciler.hostconfig.snapshot import Snapshot

PATTERN = f"{OUR_PREFIX}*.toml"
HEADER = b"# Made by runtime-reconciler; `reconciler config remove` takes its part of it away.\n"
LEFT = b"# Of runtime-reconciler; its part was taken away, and what others wrote here stays.\n"
CREATED_VERSION = 3
"""`version` of a main file that we make: every 2.x knows it."""
_VOLATILE = ("/run/", "/var/run/", "/tmp/")
"""Empty after a reboot."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def file_name(name: str) -> str:
    """Raises Refused(NotOurs) on a name that no NodeRuntime can have."""
    if not _NAME.fullmatch(name):
        raise Refused(Code.NOT_OURS, f"{name!r} cannot be the name of a NodeRuntime")
    return f"{OUR_PREFIX}{name}.toml"


def take(snapshot: Snapshot, effective: Effective, name: str) -> None:
    """Take the drop-in of `name` out: where it is read from, and one beside the main file that is not read any more.

    What others wrote into it stays.
    """
    wanted = file_name(name)
    read = [file.path for file in effective.files if posixpath.basename(file.path) == wanted]
    orphans = snapshot.host.glob(posixpath.join(posixpath.dirname(effective.main), "*", wanted))
    for path in dict.fromkeys(snapshot.host.real(path) for path in (*read, *orphans)):
        snapshot.put(path, rest_of(snapshot.read(path) or b"", name))


def rest_of(data: bytes, name: str) -> bytes | None:
    """What others wrote into our drop-in; None when that says nothing to containerd, or would stop it.

    One without our comments (somebody's tool rewrote it) is all ours.
    """
    if blocks.get(data, name) is None:
        return data if data.startswith(LEFT) else None
    others = blocks.take(data, name)
    for line in (HEADER, LEFT):
        others = others.replace(line, b"", 1)
    return LEFT + others if _says_something(others) else None


def _says_something(data: bytes) -> bool:
    try:
        return tomllib.loads(data.decode()) != {}
    except ValueError:
        return False


def _says_the_same(was: bytes, wanted: bytes) -> bool:
    """Only comments differ, as from release to release of ours: that is worth no restart."""
    try:
        return tomllib.loads(was.decode()) == tomllib.loads(wanted.decode())
    except ValueError:
        return False


def place(snapshot: Snapshot, base: Effective, name: str, text: str) -> None:
    """Write the drop-in of `name`. Raises Refused(UnsupportedDistribution, UnsupportedSyntax, NotWritable)."""
    folder = covered(snapshot.host, base, file_name(name))
    real = snapshot.host.real(folder or _own_folder(base))
    if snapshot.host.exists(real) and not snapshot.host.is_dir(real):
        raise Refused(Code.NOT_WRITABLE, f"{real} is not a directory: our drop-in must go there")
    path = posixpath.join(real, file_name(name))
    was = snapshot.seen.get(path)
    keeps_its_place = was is not None and blocks.get(was, name) is not None and rest_of(was, name) is not None
    held = was if keeps_its_place else snapshot.read(path)
    wanted = blocks.put(held or HEADER, name, text)
    snapshot.put(path, was if was is not None and _says_the_same(was, wanted) else wanted)
    if folder is None:
        _import(snapshot, base)


def covered(host: HostRoot, effective: Effective, name: str) -> str | None:
    """The first lasting directory in which a written import would match the file `name`."""
    for folder, last in _patterns(effective):
        if not folder.startswith(_VOLATILE) and host.matches(last, name):
            return folder
    return None


def settle_import(snapshot: Snapshot) -> None:
    """Take our import out again once no file of ours is left for it."""
    effective = snapshot.effective()
    for file in effective.files:
        for entry in file.document.get("imports", []):
            pattern = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), entry))
            if posixpath.basename(entry) == PATTERN and not snapshot.host.glob(pattern, snapshot.overlay):
                real = snapshot.host.real(file.path)
                snapshot.put(real, imports_list.remove(snapshot.read(real) or b"", entry))


def _patterns(effective: Effective) -> Iterator[tuple[str, str]]:
    """Directory and last element of every written pattern whose directory is a plain one."""
    for file in effective.files:
        for entry in file.document.get("imports", []):
            folder, last = posixpath.split(posixpath.join(posixpath.dirname(file.path), entry))
            if "*" in last and not any(meta in folder for meta in "*?["):
                yield posixpath.normpath(folder), last


def _own_folder(effective: Effective) -> str:
    return posixpath.join(posixpath.dirname(effective.main), "conf.d")


def _import(snapshot: Snapshot, base: Effective) -> None:
    if is_generated(base.main):
        raise no_place(base.main)
    real = snapshot.host.real(base.main)
    data = snapshot.read(real) if base.exists else blocks.created(CREATED_VERSION)
    entry = posixpath.join(_own_folder(base), PATTERN)
    try:
        snapshot.put(real, imports_list.add(data or b"", entry))
    except imports_list.NoList as error:
        raise Refused(Code.UNSUPPORTED_SYNTAX, f"{base.main}: no import can be added: {error}") from error
