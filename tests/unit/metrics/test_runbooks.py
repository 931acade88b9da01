"""Every command of ours that a runbook shows is one that there is, with words that it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from reconciler.cli.main import app

FOLDER = Path(__file__).parents[3] / "docs/runbooks"
OURS = re.compile(r"(?:^|`|-m )reconciler ([^`\n#]*[^`\n#\s.,;:])", re.M)
"""At the beginning of a line, of a quotation, or behind nsenter."""
SHOWN = sorted({(page.stem, words) for page in FOLDER.glob("*.md") for words in OURS.findall(page.read_text())})


def test_runbooks_show_commands() -> None:
    assert {words.split()[0] for _, words in SHOWN} >= {"status", "explain", "stop", "resume", "pause", "retry", "skip"}
    assert ("RuntimeReconcilerCRIMissing", "config check --root /host") in SHOWN


@pytest.mark.parametrize(("page", "words"), SHOWN, ids=[f"{page}: {words}" for page, words in SHOWN])
def test_a_command_of_a_runbook_is_understood(page: str, words: str) -> None:
    group, rest = typer.main.get_command(app), words.split()
    context = group.make_context("reconciler", [*rest], resilient_parsing=False)
    while hasattr(group, "commands"):
        name, group, rest = group.resolve_command(context, rest)
        assert group is not None
        context = group.make_context(name, [*rest], parent=context)
