"""k3s and rke2 without a directory of drop-ins: our tables go into their template, and last through a restart."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostconfig_shapes import K3S, NEW_RUNC, PLAIN
from hostconfig_trees import GVISOR, KATA, Tree, folders, read, write

from reconciler.api.noderuntime import Handler, RevisionData
from reconciler.hostconfig import Code, HostConfig, Outcome, Verdict

FOLDER = K3S.rpartition("/")[0]
OLD, NEW = f"{FOLDER}/config.toml.tmpl", f"{FOLDER}/config-v3.toml.tmpl"
BASE = '{{ template "base" . }}\n'
PLAIN_3 = f"version = 3\n{NEW_RUNC}"
MOVED = "/data/rancher/agent/etc/containerd/config.toml"
OURS = """\
# runtime-reconciler: begin gvisor
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runsc]
  runtime_type = "io.containerd.runsc.v1"
# runtime-reconciler: end gvisor
"""


@dataclass
class Node:
    """A k3s that renders its file at each start."""

    root: Path
    release: str
    built_in: str
    config: str = K3S

    def start(self) -> None:
        """Render the file from the template that this containerd's k3s uses."""
        names = [OLD] if self.release.startswith("1.") else [NEW, OLD]
        tree = read(self.root)
        template = next((tree[name].decode() for name in names if name in tree), BASE)
        write(self.root, {self.config: template.replace(BASE, self.built_in).encode()})
        changed = max((path.stat().st_mtime for path in self.root.rglob("*.tmpl")), default=0.0)
        os.utime(self.root / self.config.lstrip("/"), (changed + 1, changed + 1))

    def host(self) -> HostConfig:
        return HostConfig(self.root, self.config, self.release)

    def apply(self, name: str, data: RevisionData) -> Outcome:
        return asyncio.run(self.host().apply(name, "uid", data))

    def remove(self, name: str) -> Outcome:
        return asyncio.run(self.host().remove(name))


@pytest.fixture(params=[("1.7.34", PLAIN), ("2.0.11", PLAIN_3), ("2.2.9", PLAIN_3), ("2.3.4", PLAIN_3)])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    """One that never had a template."""
    node = Node(tmp_path, *request.param)
    node.start()
    return node


def test_a_template_is_made_that_draws_in_the_built_in_one_and_goes_again(node: Node) -> None:
    before, directories = read(node.root), folders(node.root)
    outcome = node.apply("gvisor", GVISOR)
    assert (outcome.verdict, outcome.message, outcome.handlers) == (Verdict.CHANGED, "", ("runc", "runsc"))
    name = OLD if node.release.startswith("1.") else NEW
    assert [(change.path, change.action) for change in outcome.files] == [(name, "created")]
    assert read(node.root)[K3S] == before[K3S]
    node.start()
    assert node.host().check().handlers == ("runc", "runsc")
    assert node.apply("gvisor", GVISOR).verdict is Verdict.UNCHANGED
    assert node.remove("gvisor").handlers == ("runc",)
    node.start()
    assert (read(node.root), folders(node.root)) == (before, directories)


def test_two_runtimes_and_a_removal_before_any_restart(node: Node) -> None:
    before = read(node.root)
    assert node.apply("kata", KATA).verdict is Verdict.CHANGED
    assert node.apply("gvisor", GVISOR).handlers == ("kata-qemu", "kata.fc", "runc", "runsc")
    node.start()
    assert node.remove("kata").handlers == ("runc", "runsc")
    assert node.host().check().handlers == ("runc", "runsc")
    assert node.remove("gvisor").verdict is Verdict.CHANGED
    node.start()
    assert read(node.root) == before


def test_the_text_of_a_template(tmp_path: Path) -> None:
    node = Node(tmp_path, "2.2.9", PLAIN_3)
    node.start()
    node.apply("gvisor", GVISOR)
    made = "# runtime-reconciler: this file was made by runtime-reconciler\n"
    assert read(tmp_path)[NEW].decode() == made + BASE + OURS


@pytest.mark.parametrize(
    ("release", "built_in", "name"),
    [("1.7.34", PLAIN, OLD), ("2.2.9", PLAIN_3, NEW), ("2.2.9", PLAIN, OLD)],
    ids=["containerd 1", "containerd 2", "containerd 2, the older name alone"],
)
def test_an_admins_template_keeps_every_byte(release: str, built_in: str, name: str, tmp_path: Path) -> None:
    files: Tree = {name: f"# site\n{BASE}[debug]\n  level = 'warn'".encode()}
    write(tmp_path, files)
    node = Node(tmp_path, release, built_in)
    node.start()
    before = read(tmp_path)
    outcome = node.apply("gvisor", GVISOR)
    assert [(change.path, change.action) for change in outcome.files] == [(name, "edited")]
    node.start()
    assert node.host().check().handlers == ("runc", "runsc")
    assert node.remove("gvisor").verdict is Verdict.CHANGED
    node.start()
    assert read(tmp_path) == before


def test_a_template_that_was_not_rendered_yet_is_not_brought_to_life(tmp_path: Path) -> None:
    node = Node(tmp_path, "2.2.9", PLAIN_3)
    node.start()
    write(tmp_path, {NEW: BASE.encode() + b"[debug]\n"})
    outcome = node.apply("gvisor", GVISOR)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.PENDING_FOREIGN_CHANGE)


def test_a_release_with_a_directory_of_drop_ins_uses_that_and_leaves_the_template(tmp_path: Path) -> None:
    node = Node(tmp_path, "2.2.9", PLAIN_3)
    node.start()
    node.apply("gvisor", GVISOR)
    node.built_in = PLAIN_3.replace("version = 3\n", f"version = 3\nimports = ['{FOLDER}/config-v3.toml.d/*.toml']\n")
    node.start()
    assert node.apply("gvisor", GVISOR).handlers == ("runc", "runsc")
    assert read(tmp_path).keys() == {K3S, f"{FOLDER}/config-v3.toml.d/runtime-reconciler-gvisor.toml"}


def test_data_that_lies_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, {MOVED: PLAIN_3.encode()})
    node = Node(tmp_path, "2.2.9", PLAIN_3, MOVED)
    (change,) = node.apply("gvisor", GVISOR).files
    assert change.path == "/data/rancher/agent/etc/containerd/config-v3.toml.tmpl"


def test_containerd_1_6_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, {K3S: PLAIN.encode()})
    outcome = Node(tmp_path, "1.6.20", PLAIN).apply("gvisor", GVISOR)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_DISTRIBUTION)
    assert "update k3s or rke2" in outcome.message


def test_a_value_that_a_template_would_read_is_refused(node: Node) -> None:
    before = read(node.root)
    data = RevisionData(handlers=(Handler(name="x", options={"ConfigPath": "/opt/{{ .X }}"}),))
    outcome = node.apply("x", data)
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_SYNTAX)
    assert read(node.root) == before
