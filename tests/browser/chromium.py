"""Headless Chromium, spoken to by its DevTools protocol over the one WebSocket that it opens. Only what is needed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
START = 30.0
"""Seconds until it says where it listens."""
ANSWER = 20.0
"""Seconds for one command."""
POLL = 0.05


class PageError(Exception):
    """A script in the page threw, or the browser refused a command."""


class Page:
    """One tab. `complaints`: what its console and its network said that no good page makes them say."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            said = message.json()
            if (waiting := self._waiting.pop(said.get("id", 0), None)) is not None:
                waiting.set_result(said)
            else:
                self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        session = {"sessionId": self.session} if self.session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        async with asyncio.timeout(ANSWER):
            said = await answer
        if "error" in said:
            raise PageError(f"{method}: {said['error']}")
        found: dict[str, Any] = said["result"]
        return found

    async def open(self, url: str) -> None:
        await self.command("Page.navigate", url=url)

    async def size(self, width: int, height: int, *, scale: float = 1) -> None:
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def dark(self, on: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[feature])

    async def ask(self, expression: str) -> Any:
        """Value of a JavaScript expression; a promise is awaited."""
        said = await self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise PageError(f"{expression}: {said['exceptionDetails']}")
        return said["result"].get("value")

    async def until(self, expression: str, limit: float = 20.0) -> Any:
        """Wait until the expression is true; its value."""
        try:
            async with asyncio.timeout(limit):
                while True:
                    if value := await self.ask(expression):
                        return value
                    await asyncio.sleep(POLL)
        except TimeoutError:
            raise AssertionError(f"not true within {limit} s: {expression}") from None

    async def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        await self.command("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.command("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def type(self, text: str) -> None:
        await self.command("Input.insertText", text=text)

    async def picture(self, path: Path) -> None:
        shot = await self.command("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A browser with one empty tab; it ends with the block."""
    program = shutil.which("chromium")
    if program is None:
        raise FileNotFoundError("chromium is not installed; `make browser` as root on Debian installs it")
    with TemporaryDirectory(prefix="status-page-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(START):
                address = await _address(process)
            reading = asyncio.ensure_future(_drain(process))
            async with aiohttp.ClientSession() as web, web.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                listening = asyncio.ensure_future(page.listen())
                try:
                    await _attach(page)
                    yield page
                finally:
                    listening.cancel()
                    reading.cancel()
                    await asyncio.wait({listening, reading})
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """`DevTools listening on ws://…`, the one thing that it says for programs."""
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode(errors="replace"):
        if "DevTools listening on " in line:
            return line.rpartition(" ")[2].strip()
    raise PageError("chromium ended before it listened")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """A full pipe would stop the browser."""
    assert process.stderr is not None
    while await process.stderr.readline():
        pass


async def _attach(page: Page) -> None:
    tabs = await page.command("Target.getTargets")
    tab = next(t["targetId"] for t in tabs["targetInfos"] if t["type"] == "page")
    page.session = (await page.command("Target.attachToTarget", targetId=tab, flatten=True))["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        await page.command(f"{domain}.enable")
