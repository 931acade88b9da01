"""How commands that only look answer: text for a person, JSON and YAML for programs, an exit status for scripts."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reconciler.api.overview import NodeRow, Verdict

ALL_WELL = 0
IN_PROGRESS = 3
IN_TROUBLE = 4
"""Exit status: something is stuck or failed."""

STYLES = {
    Verdict.OK: "green",
    Verdict.WORKING: "cyan",
    Verdict.WAITING: "yellow",
    Verdict.STUCK: "bold red",
    Verdict.FAILED: "bold red",
    Verdict.ASIDE: "dim",
    Verdict.ABSENT: "dim",
}
EXITS = {
    Verdict.OK: ALL_WELL,
    Verdict.WORKING: IN_PROGRESS,
    Verdict.WAITING: IN_PROGRESS,
    Verdict.STUCK: IN_TROUBLE,
    Verdict.FAILED: IN_TROUBLE,
    Verdict.ASIDE: ALL_WELL,
    Verdict.ABSENT: ALL_WELL,
}
INDENT = 2


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("--output", "-o", help="json and yaml are for programs.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on: live on a terminal, a line per change in a pipe.")]

Cell = str | Text
Row = Sequence[Cell]


def document(value: msgspec.Struct, form: Format) -> str:
    """`value` as JSON or YAML, as one document that another one may follow."""
    if form is Format.JSON:
        return msgspec.json.format(msgspec.json.encode(value), indent=INDENT).decode() + "\n"
    text = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{text}"


def exit_of(rows: Iterable[NodeRow]) -> int:
    """The worst of what the rows come to."""
    return max((EXITS[row.verdict] for row in rows), default=ALL_WELL)


def console() -> Console:
    """Of stdout as it is now."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def styled(verdict: Verdict, text: str = "") -> Text:
    return Text(text or str(verdict), STYLES[verdict])


def age(since: datetime | None, now: datetime) -> str:
    """`45s`, `3m12s`, `5h3m`, `2d4h`: as kubectl says it; `-` when it is not known."""
    if since is None:
        return "-"
    seconds = max(int((now - since).total_seconds()), 0)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size}{unit}" + (f"{rest}{name}" if rest else "")
    return f"{seconds}s"


def plain(headers: Sequence[str], rows: Iterable[Row]) -> str:
    """Columns that stay where they are: two blanks between them, none at the end of a line."""
    lines = [[*headers], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(headers))]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{text.rstrip()}\n" for text in texts)


def rich_table(headers: Sequence[str], rows: Iterable[Row], title: str = "") -> Table:
    """The same for a terminal."""
    table = Table(*headers, title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table


def warn(line: str) -> None:
    """To stderr, so that what a program reads stays as it is."""
    if line:
        print(f"reconciler: {line}", file=sys.stderr)
