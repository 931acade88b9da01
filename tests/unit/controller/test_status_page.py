"""What the status page's addresses answer, over a real socket on the loopback."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import msgspec
import pytest
from setuptools import Distribution
from setuptools.command.build_py import build_py

from metrics.exporter import Exporter
from reconciler.api.clock import SystemClock
from reconciler.api.node import Stage
from reconciler.api.overview import TROUBLED_FIRST, NodeRow, Overview, Verdict
from reconciler.controller import feed as feed_module
from reconciler.controller.feed import Feed, Replica
from reconciler.controller.statuspage import routes

PAGE = resources.files("reconciler.controller").joinpath("page")


class Fleet:
    """One node; `stage` may change."""

    stage = "ready"

    async def look(self) -> tuple[Replica, Overview]:
        row = NodeRow(runtime="kata", node="a", stage=self.stage, verdict=Verdict.OK, reason="", awaits="")
        seen = Overview(time=datetime(2026, 1, 1, tzinfo=UTC), nodes=(row,))
        return Replica(identity="one", leads=False, synced=True), seen


@asynccontextmanager
async def served(fleet: Fleet) -> AsyncIterator[int]:
    feed = Feed(fleet.look, clock=SystemClock(), rng=random.Random(1))
    async with Exporter(0, ready=lambda: True, host="127.0.0.1", routes=routes(feed)) as exporter:
        yield exporter.port


async def get(port: int, path: str, method: str = "GET", **fields: str) -> tuple[str, dict[str, str], bytes]:
    """Status line, header fields, body; `if_none_match="x"` sends that field."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
    async with asyncio.timeout(5):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *rest = head.decode().split("\r\n")
    return status, {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}, body


@pytest.mark.parametrize("path", ["/", "/status"])
async def test_the_page_may_load_nothing_from_elsewhere_and_run_nothing_inline(path: str) -> None:
    async with served(Fleet()) as port:
        status, fields, body = await get(port, path)
    assert (status, fields["content-type"]) == ("HTTP/1.1 200 OK", "text/html; charset=utf-8")
    assert fields["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert body == PAGE.joinpath("index.html").read_bytes()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.linked: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.linked += [value for name, value in attrs if name in ("href", "src") and value]
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)


async def test_everything_that_the_page_links_is_served_below_its_own_address() -> None:
    tags = _Tags()
    tags.feed(PAGE.joinpath("index.html").read_text())
    assert tags.inline == []
    imported = {
        f"status/{name}"
        for file in PAGE.iterdir()
        if file.name.endswith(".js")
        for name in re.findall(r'from "\./([a-z]+\.js)"', file.read_text())
    }
    async with served(Fleet()) as port:
        answers = {link: (await get(port, f"/{link}"))[:2] for link in {*tags.linked, *imported}}
    assert {status for status, _ in answers.values()} == {"HTTP/1.1 200 OK"}
    assert answers["status/app.js"][1]["content-type"] == "text/javascript; charset=utf-8"
    assert answers["status/page.css"][1]["content-type"] == "text/css; charset=utf-8"


def test_the_files_speak_of_no_other_host() -> None:
    for file in PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.", text), file.name


def test_the_page_knows_every_verdict_in_the_order_of_the_command_line() -> None:
    found = re.findall(r'\{ name: "([a-z]+)", sign', PAGE.joinpath("words.js").read_text())
    assert found == [str(verdict) for verdict in TROUBLED_FIRST]
    style = PAGE.joinpath("page.css").read_text()
    assert [name for name in found if f".sign.{name} {{" not in style or f"--{name}:" not in style] == []


def test_the_page_knows_every_stage() -> None:
    block = re.search(r"STAGES = \[(.*?)\]", PAGE.joinpath("words.js").read_text(), re.DOTALL)
    assert block is not None
    assert set(re.findall(r'"([a-z-]+)"', block[1])) == {str(stage) for stage in Stage}


def test_a_wheel_holds_every_file_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    project = Distribution()
    project.parse_config_files(["pyproject.toml"])
    project.include_package_data = False  # what lies in the tree must not do for what is declared
    command = project.get_command_obj("build_py")
    assert isinstance(command, build_py)
    command.ensure_finalized()
    packed = {
        name for package, _, _, names in command.data_files if package == "reconciler.controller" for name in names
    }
    assert packed == {f"page/{file.name}" for file in PAGE.iterdir()}


async def test_the_document_is_sent_once_for_each_version() -> None:
    fleet = Fleet()
    async with served(fleet) as port:
        status, fields, body = await get(port, "/status.json")
        assert (status, fields["content-type"]) == ("HTTP/1.1 200 OK", "application/json")
        assert msgspec.json.decode(body)["nodes"][0]["stage"] == "ready"
        tag = fields["etag"]
        again, fields, body = await get(port, "/status.json", if_none_match=f'"other", {tag}')
        assert (again, fields["etag"], body) == ("HTTP/1.1 304 Not Modified", tag, b"")
        other, _, body = await get(port, "/status.json", if_none_match='"other"')
        assert (other, body != b"") == ("HTTP/1.1 200 OK", True)


@pytest.mark.parametrize(
    ("accepts", "packed"), [("gzip, deflate", True), ("br;q=1.0, gzip;q=0.8", True), ("gzip;q=0", False), ("", False)]
)
async def test_the_document_is_compressed_for_who_takes_it(accepts: str, packed: bool) -> None:
    async with served(Fleet()) as port:
        _, fields, body = await get(port, "/status.json", accept_encoding=accepts)
    assert fields.get("content-encoding") == ("gzip" if packed else None)
    assert fields["vary"] == "accept-encoding"
    document = msgspec.json.decode(gzip.decompress(body) if packed else body)
    assert document["controller"] == {"identity": "one", "leads": False, "synced": True}


@pytest.mark.parametrize("path", ["/status", "/status.json", "/status/events", "/status/app.js"])
async def test_every_address_is_read_only(path: str) -> None:
    async with served(Fleet()) as port:
        assert (await get(port, path, "POST"))[0] == "HTTP/1.1 405 Method Not Allowed"
        status, _, body = await get(port, path, "HEAD")
    assert (status, body) == ("HTTP/1.1 200 OK", b"")


async def test_a_change_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "PACE", 0.05)
    fleet = Fleet()
    async with served(fleet) as port:
        version = msgspec.json.decode((await get(port, "/status.json"))[2])["version"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /status/events?since={version} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-type: text/event-stream\r\n" in head.lower()
            fleet.stage = "install"
            await reader.readuntil(b"event: change\n")
            told = await reader.readuntil(b"\n\n")
        assert b'"stage":"install"' in told
        writer.transport.abort()


async def test_the_last_event_that_a_browser_saw_goes_before_the_address() -> None:
    fleet = Fleet()
    async with served(fleet) as port:
        version = msgspec.json.decode((await get(port, "/status.json"))[2])["version"]
        _, _, body = await get(port, f"/status/events?since={version}", last_event_id="of-another-process")
    assert b"event: reload\n" in body


async def test_one_page_too_many_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "CLIENTS_MAX", 0)
    async with served(Fleet()) as port:
        status, fields, _ = await get(port, "/status/events")
    assert (status, fields["retry-after"]) == ("HTTP/1.1 503 Service Unavailable", "5")
