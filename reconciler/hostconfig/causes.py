"""What keeps containerd from serving, whatever its configuration says (design 6.11).

Asked before a change, which waits as long as there is such a cause, and when a start fails or is slow. Two are known
from the field: no inotify instance left, without which CRI does not start, and shims that do not answer: a start waits
5 s for each task of theirs, and the stop of 2.3 as long as its unit allows. Both are tried out, none is guessed from
a text.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from reconciler.hostconfig.hostroot import HostRoot

Outside = Callable[[], Awaitable[tuple[str, ...]]]
"""Causes that were found now, each as half a sentence for a person; empty when there is none."""

INSTANCES = 4
"""inotify instances that containerd may want at its start: for CNI, CDI and NRI, and one to spare."""
LIMIT = "/proc/sys/fs/inotify/max_user_instances"
ANSWER = 2.0
"""Seconds in which a shim answers; containerd itself waits 5 for each."""
SHIMS_MAX = 512
"""Shims that are asked, all at once."""
NAMED_MAX = 3
"""Pods that are named; the rest are counted."""
_TASKS = "io.containerd.runtime.v2.task/*/*"
_REQUEST = 1
"""The type of a ttrpc message."""


class _Bundle(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Bootstrap(msgspec.Struct):
    address: str = ""


async def nothing_outside() -> tuple[str, ...]:
    """Where there is no host to look at."""
    return ()


class HostCauses:
    """`Outside` of a real host; `state` is containerd's state directory, a path of the host."""

    def __init__(self, host: HostRoot, state: str) -> None:
        self._host, self._state = host, state

    async def __call__(self) -> tuple[str, ...]:
        """Never raises: a cause that cannot be looked for is not known."""
        causes = (await asyncio.to_thread(self._inotify), await self._shims())
        return tuple(cause for cause in causes if cause)

    def _inotify(self) -> str:
        """All processes of root share one limit, this one included."""
        from asyncinotify import Inotify  # only on Linux, and nothing else here needs it

        with contextlib.ExitStack() as instances:
            try:
                for _ in range(INSTANCES):
                    instances.enter_context(Inotify())
            except OSError as error:
                with contextlib.suppress(OSError):
                    limit = self._host.read(LIMIT).decode().strip()
                    return f"no inotify instance is left: raise fs.inotify.max_user_instances, now {limit}"
                return f"inotify: {error.strerror}"
        return ""

    async def _shims(self) -> str:
        shims = await asyncio.to_thread(self._addresses)
        answers = await asyncio.gather(*(_answers(self._host.local(path)) for path in shims))
        hung = sorted(name for name, answered in zip(shims.values(), answers, strict=True) if not answered)
        if not hung:
            return ""
        more = f" and {len(hung) - NAMED_MAX} more" if len(hung) > NAMED_MAX else ""
        return f"no answer from the shim of {', '.join(hung[:NAMED_MAX])}{more}"

    def _addresses(self) -> dict[str, str]:
        """Socket of a shim, path on the host → the pod that it serves."""
        found: dict[str, str] = {}
        for bundle in sorted(self._host.local(self._state).glob(_TASKS)):
            path = _address(bundle)
            if path and len(found) < SHIMS_MAX:
                found.setdefault(path, _pod(bundle))
        return found


def _address(bundle: Path) -> str:
    """2.x keeps JSON, 1.x the address alone; "" when there is none or it is no unix socket."""
    address = ""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        address = msgspec.json.decode((bundle / "bootstrap.json").read_bytes(), type=_Bootstrap).address
    if not address:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            address = (bundle / "address").read_text().strip()
    return posixpath.normpath(address.removeprefix("unix://")) if address.startswith("unix:///") else ""


def _pod(bundle: Path) -> str:
    try:
        said = msgspec.json.decode((bundle / "config.json").read_bytes(), type=_Bundle).annotations
        return f"pod {said['io.kubernetes.cri.sandbox-namespace']}/{said['io.kubernetes.cri.sandbox-name']}"
    except (OSError, KeyError, msgspec.MsgspecError):
        return f"task {bundle.parent.name}/{bundle.name}"


async def _answers(socket: Path) -> bool:
    """Whether anything comes back, an error or a closed connection included; nobody there is not a hung shim."""
    try:
        async with asyncio.timeout(ANSWER):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(_QUESTION)
                await reader.read(1)
            finally:
                writer.close()
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def _request(service: bytes, method: bytes) -> bytes:
    """A ttrpc message: length, stream, type and flags, then a protobuf with the two names as fields 1 and 2."""
    body = b"".join(bytes((tag, len(text))) + text for tag, text in ((0x0A, service), (0x12, method)))
    return struct.pack(">IIBB", len(body), 1, _REQUEST, 0) + body


_QUESTION = _request(b"containerd.task.v2.Task", b"AreYouThere")
"""A method that no shim has: the answer is an error, and changes nothing."""
