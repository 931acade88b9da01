"""What the simulation does and checks is on the page that is made from it, and the design names the same invariants."""

from __future__ import annotations

import re
from pathlib import Path

from reconciler.sim import reference
from reconciler.sim.faults import FAULTS
from reconciler.sim.invariants import INVARIANTS

ROOT = Path(__file__).parents[3]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/simulation.md").read_text() == reference.page(), "run `make docs`"


def test_every_fault_and_every_invariant_has_its_words() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \|", reference.page(), re.MULTILINE)
    assert {name for name, words in rows if len(words) > 10} == {*FAULTS, *(one.name for one in INVARIANTS)}
    assert len(rows) == len(FAULTS) + len(INVARIANTS)


def test_a_row_says_whether_simulate_offers_the_fault() -> None:
    page = reference.page()
    assert "| `crash` | containerd dies, and systemd starts it again after 5 s | yes |\n" in page
    assert "| `reboot` | A machine is rebooted |  |\n" in page


def test_the_design_names_the_invariants() -> None:
    section = re.search(r"^## 11\..*?(?=^## )", (ROOT / "docs/design.md").read_text(), re.MULTILINE | re.DOTALL)
    assert section
    named = re.findall(r"^\| `([\w-]+)` \|", section[0], re.MULTILINE)
    assert named == [one.name for one in INVARIANTS], "each has a row in section 11"
