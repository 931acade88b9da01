"""For any configuration that loads: apply adds exactly our handlers, remove gives every byte back.

`HOSTCONFIG_EXAMPLES` says how many are tried per release.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostconfig_trees import FOLDER, GVISOR, IMAGES, KATA, MAIN, Tree, folders, read, trees, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.hostconfig import HostConfig, Verdict
from reconciler.hostconfig.cri_section import runtime_id
from reconciler.hostconfig.effective import load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.version import parse

RELEASES = ("1.6.20", "1.7.34", "2.0.11", "2.2.9", "2.3.4")
EXAMPLES = int(os.environ.get("HOSTCONFIG_EXAMPLES", "40"))
"""Per release; 200 in all in `make test`."""
ANY = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
OURS = {
    "kata-qemu": {
        "runtime_type": "io.containerd.kata-qemu.v2",
        "snapshotter": "nydus",
        "pod_annotations": ["io.katacontainers.*", 'quote"d\\'],
        "privileged_without_host_devices": True,
    },
    "kata.fc": {"runtime_type": "io.containerd.kata-fc.v2", "options": {"ConfigPath": "/opt/fc.toml"}},
}


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of files are written, and none of them has to survive a power failure."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def effective(root: Path, release: str) -> dict[str, Any]:
    """The settings in force, without the keys that say how they came about."""
    found = load(HostRoot(root), "", parse(release))
    document = copy.deepcopy(found.document)
    for key in ("imports", "version"):
        document.pop(key, None)
    plugins = document.setdefault("plugins", {})
    document["runtimes"] = plugins.setdefault(runtime_id(found), {}).setdefault("containerd", {}).pop("runtimes", {})
    if document["runtimes"].get("runc") == {"runtime_type": "io.containerd.runc.v2"}:
        del document["runtimes"]["runc"]
    return document


def without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kept = {key: without_empty(one) for key, one in value.items()}
    return {key: one for key, one in kept.items() if one != {}}


def take_ours(document: dict[str, Any], release: str) -> dict[str, Any]:
    """Our handlers, which are as asked for, out of the settings in force."""
    for name, table in OURS.items():
        assert document["runtimes"].pop(name) == table
    assert document["proxy_plugins"].pop("nydus") == {"type": "snapshot", "address": "/run/nydus.sock"}
    if not release.startswith("1."):
        platforms = document["plugins"][IMAGES].pop("runtime_platforms")
        assert platforms == {"kata-qemu": {"snapshotter": "nydus"}}
    return document


@pytest.mark.parametrize("release", RELEASES)
def test_apply_adds_exactly_our_handlers_and_remove_takes_them_out(release: str) -> None:
    @ANY
    @given(trees(parse(release)))
    def check(tree: Tree) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            write(root, tree)
            host, directories = HostConfig(root, "", release), folders(root)
            findings = host.check()
            before = effective(root, release)
            outcome = asyncio.run(host.apply("kata", "uid", KATA))
            if not (findings.loads and findings.serves):
                assert outcome.verdict is Verdict.REFUSED
                assert read(root) == tree
                return
            if outcome.reason == "InlinePlugins":
                assert release.startswith("1.") and read(root) == tree
                return
            assert (outcome.verdict, outcome.message) == (Verdict.CHANGED, "")
            assert set(outcome.handlers) == {*findings.handlers, *OURS}
            assert without_empty(take_ours(effective(root, release), release)) == without_empty(before)
            assert asyncio.run(host.apply("kata", "uid", KATA)).verdict is Verdict.UNCHANGED
            assert asyncio.run(host.remove("kata")).verdict is Verdict.CHANGED
            assert (read(root), folders(root)) == (tree, directories)

    check()


def comment(tree: Tree) -> Tree:
    """A line at the top of every file."""
    return {path: b"# site\n" + data for path, data in tree.items()}


def value(tree: Tree) -> Tree:
    """Another pause image."""
    return {path: data.replace(b"p:1", b"p:10") for path, data in tree.items()}


def appended(tree: Tree) -> Tree:
    """A table at the end of the main file, with the line end of its last line."""
    data = tree.get(MAIN, b"")
    last = data.rfind(b"\n")
    end = b"\r\n" if last > 0 and data[last - 1 : last] == b"\r" else b"\n"
    joint = b"" if data.endswith(b"\n") or not data else end
    return {**tree, MAIN: data + joint + b"[stream_processors.site]" + end + b'  path = "/bin/site"' + end}


def file(tree: Tree) -> Tree:
    """A drop-in."""
    return {**tree, f"{FOLDER}/50-site.toml": b"[debug]\n"}


@pytest.mark.parametrize("release", RELEASES)
def test_two_runtimes_go_in_any_order_and_leave_the_edits_of_others(release: str) -> None:
    @ANY
    @given(
        trees(parse(release)),
        st.permutations(["kata", "gvisor"]),
        st.lists(st.sampled_from([comment, value, appended, file]), unique=True),
    )
    def check(tree: Tree, order: list[str], edits: list[Callable[[Tree], Tree]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            write(root, tree)
            host, directories = HostConfig(root, "", release), folders(root)
            first = asyncio.run(host.apply("kata", "uid", KATA))
            second = asyncio.run(host.apply("gvisor", "uid", GVISOR))
            if not tree:
                assert second.verdict is first.verdict
                return
            if first.verdict is Verdict.REFUSED:  # what keeps a snapshotter out need not keep a plain handler out
                if second.verdict is Verdict.CHANGED:
                    assert asyncio.run(host.remove("gvisor")).verdict is Verdict.CHANGED
                assert read(root) == tree
                return
            made = read(root).keys() - tree.keys()
            for edit in edits:
                mine = {path: data for path, data in read(root).items() if path in made}
                write(root, {**edit(read(root)), **mine})
                tree = edit(tree)
            assert {"kata-qemu", "kata.fc", "runsc"} <= set(host.check().handlers)
            for name in order:
                assert asyncio.run(host.remove(name)).verdict is Verdict.CHANGED
            directories |= {FOLDER} if file in edits else set()
            assert (read(root), folders(root)) == (tree, directories)

    check()


def test_a_main_file_is_never_left_half_made(tmp_path: Path) -> None:
    host = HostConfig(tmp_path, "", "2.2.9")
    asyncio.run(host.apply("kata", "uid", GVISOR))
    assert read(tmp_path)[MAIN] == (
        b"# runtime-reconciler: this file was made by runtime-reconciler\nversion = 3\n"
        b'imports = ["/etc/containerd/conf.d/runtime-reconciler-*.toml"] # added by runtime-reconciler\n'
    )
    asyncio.run(host.remove("kata"))
    assert (read(tmp_path), folders(tmp_path)) == ({}, set())
