"""The command line as a person has it: a process of its own, on a terminal, with what it printed kept."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

from tests.browser.chromium import Page

COLUMNS = 150
LIMIT = 30.0
"""Seconds."""
FENCED = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Said:
    """`screen`: with the colours of a terminal."""

    command: str
    status: int
    screen: str

    @property
    def text(self) -> str:
        return Text.from_ansi(self.screen).plain


class Terminal:
    """`run` plays one command against the cluster of `url`."""

    def __init__(self, url: str, folder: Path) -> None:
        self._kubeconfig = folder / "kubeconfig"
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tour",
            "clusters": [{"name": "tour", "cluster": {"server": url}}],
            "users": [{"name": "admin", "user": {"token": "admin"}}],
            "contexts": [{"name": "tour", "context": {"cluster": "tour", "user": "admin"}}],
        }
        self._kubeconfig.write_text(yaml.safe_dump(body))

    async def run(self, *words: str) -> Said:
        """`reconciler WORDS`."""
        return await asyncio.to_thread(self._run, words)

    def _run(self, words: tuple[str, ...]) -> Said:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "TERM": "xterm-256color"}
        environment |= {"COLUMNS": str(COLUMNS), "LINES": "60", "COLORTERM": "truecolor"}
        process = subprocess.Popen(
            [sys.executable, "-m", "reconciler", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        said = b""
        with suppress(OSError):  # EIO: the other end is closed
            while part := os.read(ours, 65536):
                said += part
        os.close(ours)
        return Said(" ".join(("reconciler", *words)), process.wait(LIMIT), said.decode().replace("\r\n", "\n"))


def steps(runbook: Path, **chosen: str) -> list[tuple[str, ...]]:
    """The `reconciler` commands that a runbook shows, with NODE and RUNTIME filled in."""
    found = []
    for block in FENCED.findall(runbook.read_text()):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            if words and words[0] == "reconciler":
                found.append(tuple(chosen.get(word, word) for word in words[1:]))
    return found


async def picture(said: Said, page: Page, path: Path) -> None:
    """What a terminal shows of it, as a PNG beside its text."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {said.command}", style="bold"))
    console.print(Text.from_ansi(said.screen))
    page_file = path.with_suffix(".html")
    page_file.write_text(console.export_html(inline_styles=True))
    path.with_suffix(".txt").write_text(said.text)
    await page.open(page_file.resolve().as_uri())
    await page.until("document.readyState === 'complete'")
    height = await page.ask("Math.ceil(document.querySelector('pre').getBoundingClientRect().height) + 40")
    await page.size(COLUMNS * 10, height)
    await page.picture(path)
    page_file.unlink()
