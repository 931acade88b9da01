"""`extra` is checked against the containerd that would read it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hostconfig_shapes import PLAIN, one
from hostconfig_trees import read, write

from reconciler.api.noderuntime import Handler, RevisionData
from reconciler.hostconfig import Code, HostConfig, Verdict


@pytest.mark.parametrize(
    ("key", "release", "known"),
    [
        ("sandbox_mode", "1.6.20", False),
        ("sandbox_mode", "1.7.34", True),
        ("sandbox_mode", "2.0.11", False),
        ("sandboxer", "1.7.34", False),
        ("sandboxer", "2.0.11", True),
        ("cgroup_writable", "2.0.11", False),
        ("cgroup_writable", "2.2.9", True),
        ("runtime_root", "1.6.20", True),
        ("runtime_root", "2.3.4", False),
        ("cni_conf_dir", "1.6.20", True),
        ("cni_conf_dir", "2.3.4", True),
        ("sandbx", "2.2.9", False),
    ],
)
def test_a_key_that_would_be_dropped_is_refused(key: str, release: str, known: bool, tmp_path: Path) -> None:
    files = one(PLAIN)
    write(tmp_path, files)
    data = RevisionData(handlers=(Handler(name="x", runtime_type="io.x.v1", extra={key: "shim"}),))
    outcome = asyncio.run(HostConfig(tmp_path, "", release).apply("site", "uid", data))
    if known:
        assert outcome.verdict is Verdict.CHANGED
    else:
        assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_VERSION)
        assert outcome.message == f"containerd {release} does not know the key {key!r} (`extra` of handler x)"
        assert read(tmp_path) == files
