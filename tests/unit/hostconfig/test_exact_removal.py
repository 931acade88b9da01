"""`remove(apply(x)) == x`, for files in any shape that somebody may have left."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.hostconfig import blocks
from reconciler.hostconfig.hostroot import HostRoot

LINES = st.lists(st.sampled_from([b"version = 2", b"[debug]", b"", b"  level = 'info'", b"# note"]), max_size=8)


@given(lines=LINES, eol=st.sampled_from([b"\n", b"\r\n"]), ended=st.booleans(), first_in_first_out=st.booleans())
def test_two_blocks_come_and_go_in_any_order(
    lines: list[bytes], eol: bytes, ended: bool, first_in_first_out: bool
) -> None:
    data = eol.join(lines) + (eol if ended and lines else b"")
    both = blocks.put(blocks.put(data, "a", "[x]\n"), "b", "[y]\n")
    order = ("a", "b") if first_in_first_out else ("b", "a")
    left = blocks.take(both, order[0])
    assert [block.owner for block in blocks.find(left)] == [order[1]]
    assert blocks.take(left, order[1]) == data


def test_text_that_others_put_behind_our_block_stays() -> None:
    data = blocks.put(b"version = 2", "a", "[x]\n") + b"[debug]\n"
    assert blocks.take(data, "a") == b"version = 2\n[debug]\n"


def test_a_block_is_replaced_where_it_is() -> None:
    data = blocks.put(b"version = 2\n", "a", "[x]\n") + b"[debug]\n"
    assert blocks.put(data, "a", "[z]\n") == data.replace(b"[x]", b"[z]")


def test_only_tables_below_the_prefix_go() -> None:
    data = b"[a.b]\nx = 1\n[a.b.c]\n[a.bc]\n[['d']]\n"
    assert blocks.take_tables(data, [("a", "b")]) == b"[a.bc]\n[['d']]\n"


def test_links_do_not_lead_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/out").symlink_to("/../../usr/x.toml")
    assert HostRoot(tmp_path).real("/etc/out") == "/usr/x.toml"


@pytest.mark.parametrize(("pattern", "found"), [("/d/*.toml", ["/d/.h.toml", "/d/10.toml", "/d/9.toml"]), ("/e/*", [])])
def test_patterns_match_as_in_go(tmp_path: Path, pattern: str, found: list[str]) -> None:
    (tmp_path / "d").mkdir()
    for name in ("9.toml", "10.toml", ".h.toml", "x.bak"):
        (tmp_path / "d" / name).touch()
    assert HostRoot(tmp_path).glob(pattern) == found
