"""Shapes that containerd 1.x loads and our parser refuses: reported as such, and never touched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hostconfig_trees import KATA, MAIN, read, write

from reconciler.hostconfig import BinaryDump, Code, HostConfig, Verdict

SHAPES = {
    "bare carriage return in a comment": b"version = 2\n# a\rb\n",
    "bare carriage return as a line end": b"version = 2\r[debug]\r",
    "control byte in a comment": b"# \x07\nversion = 2\n",
    "delete byte in a comment": b"# \x7f\nversion = 2\n",
    "Latin-1 in a comment": b"# caf\xe9\nversion = 2\n",
    "a header after dotted keys": b'version = 2\ndebug.level = "info"\n[debug]\nuid = 0\n',
}


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_not_touched(shape: str, release: str, containerd: Path, tmp_path: Path) -> None:
    tree = {MAIN: SHAPES[shape]}
    write(tmp_path, tree)
    host = HostConfig(tmp_path, "", release, dump=BinaryDump(tmp_path, containerd))
    expected = Code.UNSUPPORTED_SYNTAX if release.startswith("1.") else Code.INVALID_TOML
    assert [finding.code for finding in host.check().findings][:1] == [expected]
    assert asyncio.run(host.apply("kata", "uid", KATA)).reason is expected
    assert asyncio.run(host.repair()).verdict is Verdict.REFUSED
    assert read(tmp_path) == tree
