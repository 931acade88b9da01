"""The status page: one HTML file, its script and its style, the document and the stream of changes. Reading only.

What it shows is the read model of `reconciler.api.overview` and nothing else. No part of it comes from
another host, and the browser is told to load nothing that is not from here.
"""

from __future__ import annotations

from http import HTTPStatus
from importlib import resources

from metrics.server import Answer, Request, Route
from reconciler.api.overview import Overview
from reconciler.controller.feed import Feed, Full, Replica
from reconciler.controller.service import Controller

PATH = "/status"
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Content type by the end of a file's name."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDED = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
RETRY_AFTER = "5"
"""Seconds."""


async def seen_by(controller: Controller) -> tuple[Replica, Overview]:
    """What one replica has to show."""
    replica = Replica(identity=controller.identity, leads=controller.is_leader, synced=controller.synced)
    return replica, await controller.overview()


def routes(feed: Feed) -> dict[str, Route]:
    """By path; the page loads its parts by relative addresses, so it works behind a proxy with a prefix, too."""
    found = {f"{PATH}/{name}": _file(kind, body) for name, kind, body in _files() if name != "index.html"}
    index = _file(KINDS["html"], _read("index.html"))
    return {
        "/": index,
        PATH: index,
        **found,
        f"{PATH}.json": _document(feed),
        f"{PATH}/events": _events(feed),
    }


def _files() -> list[tuple[str, str, bytes]]:
    folder = resources.files(__package__).joinpath("page")
    return [(f.name, KINDS[f.name.rpartition(".")[2]], f.read_bytes()) for f in folder.iterdir()]


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath("page", name).read_bytes()


def _file(kind: str, body: bytes) -> Route:
    async def answer(_: Request) -> Answer:
        return Answer(kind=kind, body=body, fields={**GUARDED, "cache-control": "no-cache"})

    return answer


def _document(feed: Feed) -> Route:
    async def answer(request: Request) -> Answer:
        whole = await feed.whole()
        tag = f'W/"{whole.version}"'
        fields = {**GUARDED, "cache-control": "no-cache", "etag": tag, "vary": "accept-encoding"}
        if _matches(request.headers.get("if-none-match", ""), tag):
            return Answer(status=HTTPStatus.NOT_MODIFIED, fields=fields, kind="application/json")
        if not _takes_gzip(request.headers.get("accept-encoding", "")):
            return Answer(kind="application/json", body=whole.body, fields=fields)
        packed = await whole.packed()
        return Answer(kind="application/json", body=packed, fields={**fields, "content-encoding": "gzip"})

    return answer


def _events(feed: Feed) -> Route:
    async def answer(request: Request) -> Answer:
        since = request.headers.get("last-event-id") or request.query.get("since", "")
        fields = {**GUARDED, "cache-control": "no-store", "x-accel-buffering": "no"}
        try:
            return Answer(kind="text/event-stream", body=feed.stream(since), fields=fields)
        except Full:
            return Answer(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                body=b"too many open pages\n",
                fields={**GUARDED, "retry-after": RETRY_AFTER},
            )

    return answer


def _matches(field: str, tag: str) -> bool:
    """`If-None-Match` (RFC 9110, 13.1.2): a weak comparison with each of the tags."""
    tags = [t.strip().removeprefix("W/") for t in field.split(",")]
    return "*" in tags or tag.removeprefix("W/") in tags


def _takes_gzip(field: str) -> bool:
    """`Accept-Encoding` (RFC 9110, 12.5.3), where `q=0` means: not that one."""
    for part in field.lower().split(","):
        coding, _, parameters = part.partition(";")
        if coding.strip() == "gzip":
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
