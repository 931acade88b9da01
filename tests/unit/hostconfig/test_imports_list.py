"""An import is added and taken out without touching another byte."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.hostconfig import imports_list
from reconciler.hostconfig.imports_list import NoList

OURS = "/etc/containerd/conf.d/runtime-reconciler-*.toml"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b'imports = ["%s"] # added by runtime-reconciler\n'),
        (b"version = 2\n[a]\n", b'version = 2\nimports = ["%s"] # added by runtime-reconciler\n[a]\n'),
        (b"version = 2", b'imports = ["%s"] # added by runtime-reconciler\nversion = 2'),
        (b"version=3\r\n[a]\r\n", b'version=3\r\nimports = ["%s"] # added by runtime-reconciler\r\n[a]\r\n'),
        (b"[a]\nversion = 1\n", b'imports = ["%s"] # added by runtime-reconciler\n[a]\nversion = 1\n'),
        (b"imports = []\n", b'imports = ["%s"]\n'),
        (b"imports = [ ]  # none\n", b'imports = ["%s" ]  # none\n'),
        (b'"imports"=["/a"]\n', b'"imports"=["/a", "%s"]\n'),
        (b"imports = [\n  '/a', # x ]\n  '/b',\n]\n", b"imports = [\n  '/a', # x ]\n  '/b', \"%s\",\n]\n"),
        (b'x = """\nimports = []\n"""\nimports = [""]\n', b'x = """\nimports = []\n"""\nimports = ["", "%s"]\n'),
        (
            b'# imports = ["/x"]\nroot = "a#b"\n',
            b'imports = ["%s"] # added by runtime-reconciler\n# imports = ["/x"]\nroot = "a#b"\n',
        ),
    ],
)
def test_one_entry_comes_and_goes(before: bytes, after: bytes) -> None:
    added = imports_list.add(before, OURS)
    assert added == after.replace(b"%s", OURS.encode())
    assert imports_list.remove(added, OURS) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b'imports = ["%s", "/b"] # added by runtime-reconciler\n',
            b'imports = ["/b"] # added by runtime-reconciler\n',
        ),
        (b'imports = ["%s"]\n', b"imports = []\n"),
        (b'imports = ["/a","%s","/b"]\n', b'imports = ["/a","/b"]\n'),
        (b'# site\nimports = ["%s"] # added by runtime-reconciler\r\n[a]\r\n', b"# site\n[a]\r\n"),
        (b"imports = ['/a']\n", b"imports = ['/a']\n"),
        (b"[a]\nimports = ['%s']\n", b"[a]\nimports = ['%s']\n"),
    ],
)
def test_what_others_made_of_the_list_stays(before: bytes, after: bytes) -> None:
    assert imports_list.remove(before.replace(b"%s", OURS.encode()), OURS) == after.replace(b"%s", OURS.encode())


def test_a_value_that_is_no_list_is_named() -> None:
    with pytest.raises(NoList, match="`imports` is not a list"):
        imports_list.add(b"imports = 'x'\n", OURS)


BLANKS = st.sampled_from(["", " ", "\t"])
ENDS = st.sampled_from(["\n", "\r\n"])
ENTRY = st.sampled_from(['"/a"', "'/b[x]*'", '"c\\"d"', '"#e"', "'f]'"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files with every way to write a list that TOML allows, and what may stand around it."""
    end = draw(ENDS)
    separators = st.sampled_from([",", ", ", f",{end}", f", # ]{end}"])
    entries = draw(st.lists(ENTRY, max_size=3))
    inner = draw(separators).join(entries) + (draw(st.sampled_from(["", ",", f" # c{end}"])) if entries else "")
    key = draw(st.sampled_from(["imports", '"imports"', "'imports'"]))
    line = (
        f"{key}{draw(BLANKS)}={draw(BLANKS)}[{draw(BLANKS)}{inner}{draw(BLANKS)}]{draw(st.sampled_from(['', ' # x']))}"
    )
    around = ["version = 2", 'root = "/r#["', "# imports = [", 'temp = """\n[x]\n"""', "oom_score=-1", "grpc.uid = 1"]
    lines = draw(st.lists(st.sampled_from(around), unique=True))
    if draw(st.booleans()):
        lines.insert(draw(st.integers(0, len(lines))), line)
    lines += draw(st.sampled_from([[], ["[debug]", '  level = "info"', "  imports = 1"]]))
    return (end.join(lines) + draw(st.sampled_from(["", end]))).encode()


@given(files())
def test_any_list_keeps_its_bytes_and_gets_one_entry(data: bytes) -> None:
    before = tomllib.loads(data.decode())
    added = imports_list.add(data, OURS)
    after = tomllib.loads(added.decode())
    assert after.pop("imports") == [*before.pop("imports", []), OURS]
    assert after == before
    assert imports_list.remove(added, OURS) == data
