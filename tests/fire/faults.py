"""What befalls one request on its way, drawn from the seed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

HTML = "<html><body>Der Dienst ist zurzeit nicht verfügbar – 服务不可用</body></html>".encode()


@dataclass(frozen=True)
class Canned:
    """An answer that no API server behind the proxy has given."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)


@dataclass(frozen=True)
class Fault:
    """Parts that are left out do nothing. Counts are bytes of the answer as they go over the wire."""

    name: str
    delay: float = 0.0
    """Seconds before the request is passed on."""
    canned: Canned | None = None
    in_stream: bytes = b""
    """A line that a watch is given before it ends."""
    cut_at: int | None = None
    """After so many bytes; -1: as soon as the request is here, unread by the server."""
    inside_a_character: bool = False
    """Cut at the first byte of a character of several, at or after `cut_at`."""
    how: str = "reset"
    """How it is cut: reset, end (FIN), half (FIN, but the other half stays), polite (the end of the body, as if it were
    whole), stall (nothing more, and no end)."""
    close_after: bool = False
    """A kept connection is closed when its next request comes."""


def _status(code: int, reason: str) -> bytes:
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": reason}
    ).encode()


def _line(code: int, reason: str) -> bytes:
    return b'{"type":"ERROR","object":' + _status(code, reason) + b"}\n"


def draw(rng: random.Random, *, watch: bool) -> Fault:
    """One of all that can befall a watch, or another request; where it strikes is drawn, too."""
    name = rng.choice(OF_A_WATCH if watch else OF_A_REQUEST)
    if name.startswith("cut-"):
        how = name.removeprefix("cut-")
        return Fault(name, cut_at=rng.choice((0, rng.randrange(400), rng.randrange(6000))), how=how)
    if name == "character":
        how = rng.choice(("reset", "end", "polite"))
        return Fault(name, cut_at=rng.randrange(4000), inside_a_character=True, how=how)
    if name == "delay":
        return Fault(name, delay=rng.choice((0.5, 3.0, 12.0)))
    return PLAIN[name]


PLAIN = {
    "unread": Fault("unread", cut_at=-1),
    "unread-stall": Fault("unread-stall", cut_at=-1, how="stall"),
    "410": Fault("410", canned=Canned(410, _status(410, "Expired"))),
    "410-in-stream": Fault("410-in-stream", in_stream=_line(410, "Expired")),
    "504-in-stream": Fault("504-in-stream", in_stream=_line(504, "Timeout")),
    "500-in-stream": Fault("500-in-stream", in_stream=_line(500, "InternalError")),
    "429": Fault("429", canned=Canned(429, _status(429, "TooManyRequests"), (("retry-after", "1"),))),
    "429-long": Fault("429-long", canned=Canned(429, _status(429, "TooManyRequests"), (("retry-after", "9"),))),
    "500": Fault("500", canned=Canned(500, _status(500, "InternalError"))),
    "503": Fault("503", canned=Canned(503, _status(503, "ServiceUnavailable"))),
    "page-200": Fault("page-200", canned=Canned(200, HTML, (("content-type", "text/html"), ("server", "Café")))),
    "page-502": Fault("page-502", canned=Canned(502, HTML, (("content-type", "text/html"),))),
    "json-200": Fault("json-200", canned=Canned(200, b'{"message":"maintenance"}')),
    "empty-200": Fault("empty-200", canned=Canned(200, b"")),
    "closed-at-next": Fault("closed-at-next", close_after=True),
}
NAMES = ("cut-reset", "cut-end", "cut-half", "cut-polite", "cut-stall", "character", "delay", *PLAIN)
OF_A_REQUEST = tuple(name for name in NAMES if not name.endswith("in-stream"))
OF_A_WATCH = (*(name for name in NAMES if name != "closed-at-next"), "cut-stall", "cut-stall")
"""What only a watch can meet, and what it meets for longest, more often."""
