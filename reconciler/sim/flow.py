"""How the bytes of a watch travel from the API server to its client: late, in small pieces, or torn off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass


class Dropped(Exception):
    """The connection breaks: the client gets no answer, and does not know what was done."""


@dataclass(frozen=True)
class Flow:
    """What befalls one piece of a watch, in this order."""

    bookmarks: bool = True
    """False: a bookmark is not sent."""
    lag: float = 0.0
    """Seconds that it waits; what is behind it waits as well."""
    piece: int = 0
    """Bytes that arrive at once at most; 0: all of it."""
    torn: float | None = None
    """The part of its bytes, from 0 to 1, that still arrives before the connection breaks; None: all go through."""
    polite: bool = False
    """A torn stream comes to a good end, as through a proxy that lost its server, and does not break."""


STRAIGHT = Flow()
BOOKMARK = b'{"type":"BOOKMARK"'


async def carried(chunks: AsyncGenerator[bytes], flow: Callable[[], Flow]) -> AsyncGenerator[bytes]:
    """`chunks` on their way; `flow` is asked for each. Raises Dropped where the connection breaks."""
    async with aclosing(chunks):
        async for chunk in chunks:
            now = flow()
            if chunk.startswith(BOOKMARK) and not now.bookmarks:
                continue
            if now.lag:
                await asyncio.sleep(now.lag)
            whole = len(chunk) if now.torn is None else int(len(chunk) * now.torn)
            size = now.piece or len(chunk)
            for start in range(0, whole, size):
                yield chunk[start : min(start + size, whole)]
            if now.torn is not None:
                if now.polite:
                    return
                raise Dropped("the connection was reset")
