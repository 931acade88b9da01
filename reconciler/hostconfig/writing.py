"""Durable writes below the host's root: whole or not at all, with the owner, mode and xattrs of what was there."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Callable
from pathlib import Path

from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.model import Code, Refused

Trace = Callable[[str], None]
"""Called before each step that changes something; tests end the process there, or let the disk fail (OSError)."""

ABSENT = "absent"
MODE = 0o644
"""Of a configuration file that was not there."""
MADE = "user.runtime-reconciler.made"
"""Extended attribute of a directory that we made."""
_MOUNT_POINT = (errno.EBUSY, errno.EXDEV)


def nothing(_step: str) -> None:
    """The trace of production."""


def digest(data: bytes | None) -> str:
    """sha256 in hex, or `absent` for a file that is not there."""
    return ABSENT if data is None else hashlib.sha256(data).hexdigest()


def read(path: Path) -> bytes | None:
    """None for a file that is not there. Raises OSError otherwise."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_state(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file of our own state directory. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(path.name + ".new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        _write_all(handle, data)
        os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)
    temporary.replace(path)
    sync_directory(path.parent)


def probe(host: HostRoot, path: str) -> None:
    """Raises Refused(NotWritable) when `path` can be seen not to be replaceable; writes nothing that stays."""
    local = host.local(path)
    try:
        info = local.stat()
    except FileNotFoundError:
        return
    if info.st_nlink > 1:
        raise Refused(Code.NOT_WRITABLE, f"{path} has {info.st_nlink} hard links")
    if not stat.S_ISREG(info.st_mode):
        raise Refused(Code.NOT_WRITABLE, f"{path} is not a regular file")


def replace(
    host: HostRoot,
    path: str,
    expected: str,
    data: bytes | None,
    *,
    temporary_in: Path,
    trace: Trace,
    mode: int = MODE,
) -> None:
    """Put `data` (None: no file) in place of the file whose digest is `expected`.

    The temporary file lies in `temporary_in`, where no import matches it, or, when that is another
    filesystem, under a dotted name without `.toml` beside the file. Raises Refused(ForeignChange) when the
    file is not the expected one any more, Refused(NotWritable) when it cannot be written.
    """
    local = host.local(path)
    try:
        if digest(read(local)) != expected:
            raise Refused(Code.FOREIGN_CHANGE, f"{path} was edited while we worked")
        if data is None:
            trace(f"unlink {path}")
            local.unlink(missing_ok=True)
        else:
            make_directories(local.parent)
            _rename_into(local, path, expected, data, temporary_in, trace, mode)
        trace(f"sync {path}")
        sync_directory(local.parent)
    except OSError as error:
        raise Refused(Code.NOT_WRITABLE, f"{path}: {error.strerror}") from error


def make_directories(folder: Path) -> None:
    """Make `folder` and what is missing above it, durably and with our mark. Raises OSError."""
    if folder.is_dir():
        return
    make_directories(folder.parent)
    folder.mkdir(mode=0o755)
    with contextlib.suppress(OSError):  # a filesystem without extended attributes: the journal knows
        os.setxattr(folder, MADE, b"1")
    sync_directory(folder.parent)


def _rename_into(
    local: Path, path: str, expected: str, data: bytes, temporary_in: Path, trace: Trace, mode: int
) -> None:
    for folder in (temporary_in, local.parent):
        temporary = _temporary(folder, path)
        trace(f"temporary {path}")
        try:
            _fill(temporary, data, local, mode)
            if digest(read(local)) != expected:
                raise Refused(Code.FOREIGN_CHANGE, f"{path} was edited while we worked")
            trace(f"rename {path}")
            temporary.replace(local)
            return
        except OSError as error:
            if error.errno not in _MOUNT_POINT:
                raise
        finally:
            temporary.unlink(missing_ok=True)
    _in_place(local, path, expected, data, trace)


def _temporary(folder: Path, path: str) -> Path:
    return folder / f".{posixpath.basename(path)}.runtime-reconciler"


def clean(host: HostRoot, path: str, temporary_in: Path) -> None:
    """Delete temporary files that a killed process left; what cannot be deleted stays."""
    for folder in (temporary_in, host.local(path).parent):
        with contextlib.suppress(OSError):
            _temporary(folder, path).unlink(missing_ok=True)


def _fill(temporary: Path, data: bytes, like: Path, mode: int) -> None:
    """A new file that holds `data` with owner, mode and xattrs of `like` (`mode` of root when there is none)."""
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(handle, data)
        with contextlib.suppress(FileNotFoundError):
            _copy_attributes(handle, like)
        if not like.exists():
            os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_attributes(handle: int, like: Path) -> None:
    info = like.stat()
    os.fchown(handle, info.st_uid, info.st_gid)
    os.fchmod(handle, stat.S_IMODE(info.st_mode))
    for name in os.listxattr(like):
        value = os.getxattr(like, name)
        try:
            os.setxattr(handle, name, value)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM):
                raise


def _in_place(local: Path, path: str, expected: str, data: bytes, trace: Trace) -> None:
    """A mount point cannot be renamed over; the new bytes lie in the journal already, and space is reserved."""
    if digest(read(local)) != expected:
        raise Refused(Code.FOREIGN_CHANGE, f"{path} was edited while we worked")
    trace(f"in place {path}")
    handle = os.open(local, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if len(data) > os.fstat(handle).st_size:
            os.posix_fallocate(handle, 0, len(data))
        _write_all(handle, data)
        os.ftruncate(handle, len(data))
        os.fsync(handle)
    finally:
        os.close(handle)


def torn(data: bytes, old: bytes, new: bytes) -> bool:
    """Whether `data` is what a write of `new` over `old`, in place, left when it was cut off.

    That is a beginning of `new` and from there on `old`, with zeros where space was reserved beyond it.
    """
    if data in (old, new) or not len(old) <= len(data) <= max(len(old), len(new)):
        return False
    both = min(len(data), len(new))
    written = next((at for at in range(both) if data[at] != new[at]), both)
    return data[written:] == old.ljust(len(data), b"\0")[written:]


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
