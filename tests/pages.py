"""The pages of the documentation, and the commands in them: every one is run by a test, in the place that it is for."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy/chart/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
_BLOCK = r"^( *)```{}\n(.*?)^\1```$"
ON_THE_HOST = ("reconciler config", "systemctl", "journalctl", "nsenter")
NOWHERE = {
    "buildah push": "needs a registry",
    "make image": "needs one, too; the same file is built for the real cluster",
    "kubectl -n runtime-reconciler top": "needs a metrics server",
}
"""Beginnings of commands that no test runs, and why."""


class Place(enum.Enum):
    """Where a command is run by which test."""

    TREE = "from this tree, by make test"
    CHART = "beside a real API server, by make chart"
    CLUSTER = "on the real cluster, by make e2e"
    HOST = "on a node of it"
    NOWHERE = "not at all"


@dataclass(frozen=True)
class Command:
    page: Path
    text: str

    @property
    def place(self) -> Place:
        """Raises ValueError for a command that has none."""
        if self.text.startswith(tuple(NOWHERE)):
            return Place.NOWHERE
        if self.text.startswith(ON_THE_HOST):
            return Place.HOST
        program = self.text.split()[0]
        places = {"make": Place.TREE, ".venv/bin/reconciler": Place.TREE, "helm": Place.CHART}
        places |= {"kubectl": Place.CLUSTER, "reconciler": Place.CLUSTER}
        if program not in places:
            raise ValueError(f"{self.page.name}: nobody runs `{self.text}`")
        return places[program]


def commands(page: Path) -> list[Command]:
    """In their order; a line that ends with a backslash goes on."""
    found = []
    for block in _blocks(page, "sh"):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        found += [Command(page, line.strip()) for line in lines if line.strip() and not line.strip().startswith("#")]
    return found


def manifest(page: Path) -> str:
    """The one block of YAML of `page`. Raises ValueError when there is another number of them."""
    (block,) = _blocks(page, "yaml")
    return block


def _blocks(page: Path, language: str) -> list[str]:
    """What stands between fences of that language, those in lists included."""
    found = re.findall(_BLOCK.format(language), page.read_text(), re.MULTILINE | re.DOTALL)
    return [block for _, block in found]


def every() -> list[Command]:
    return [command for page in PAGES for command in commands(page)]
