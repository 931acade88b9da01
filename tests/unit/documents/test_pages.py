"""The documentation holds together: links lead somewhere, and no command is in it that nobody runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, Command, Place, commands, every

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As renderers of Markdown make them from headings."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(page.read_text()))
    return {"#" + word.strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}{anchor}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        links = [(page.parent / target).resolve() for target, _ in _LINK.findall(page.read_text()) if target]
        for link in links:
            ahead += sorted(link.glob("*.md")) if link.is_dir() else [link] if link.suffix == ".md" else []
    assert set(PAGES) - reached == set()


def test_every_command_has_a_test_that_runs_it() -> None:
    places = [command.place for command in every()]  # raises for one that has none
    assert {place for place in Place if places.count(place)} == set(Place)


def test_every_target_of_make_is_there() -> None:
    named = {command.text.split()[1] for command in every() if command.text.startswith("make ")}
    named |= set(re.findall(r"`make (\w+)", "".join(page.read_text() for page in PAGES)))
    assert {"demo", "test", "hosts", "e2e"} <= named
    for target in named:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_a_command_that_goes_on_is_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "1. Do:\n\n   ```sh\n   kubectl get \\\n     nodes\n   # why\n   make demo\n   ```\n```yaml\na: 1\n```\n"
    )
    assert commands(page) == [Command(page, "kubectl get nodes"), Command(page, "make demo")]


def test_a_program_that_no_test_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nobody runs `curl x`"):
        _ = Command(tmp_path / "page.md", "curl x").place
