"""Every shape of the field with every release: our handlers come and go, or a refusal says why."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hostconfig_shapes import ALL, BROKEN, LOADS, MICROK8S, ONE
from hostconfig_trees import FOLDER, MAIN, read, write

from reconciler.api.noderuntime import Handler, RevisionData
from reconciler.hostconfig import Code, HostConfig, Verdict
from reconciler.hostconfig.cri_section import served_runtimes
from reconciler.hostconfig.distribution import edited_file
from reconciler.hostconfig.effective import load
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.version import parse

CRUN = RevisionData(handlers=(Handler(name="crun", options={"BinaryName": "/bin/crun"}), Handler(name="kata.qemu")))


@pytest.mark.parametrize(("shape", "release"), [(name, one) for name in LOADS for one in LOADS[name].releases])
def test_handlers_come_and_go(shape: str, release: str, tmp_path: Path) -> None:
    about = LOADS[shape]
    write(tmp_path, about.files)
    host = HostConfig(tmp_path, about.config, release)
    findings = host.check()
    assert (findings.loads, findings.serves, findings.handlers) == (True, True, about.handlers)
    outcome = asyncio.run(host.apply("site", "uid", CRUN))
    assert (outcome.verdict, outcome.message) == (Verdict.CHANGED, "")
    assert outcome.handlers == tuple(sorted({*about.handlers, "crun", "kata.qemu"}))
    main = edited_file(HostRoot(tmp_path), about.config)
    served = served_runtimes(load(HostRoot(tmp_path), main, parse(release)))
    cgroup = {"SystemdCgroup": True} if about.cgroup else {}
    assert served["crun"]["options"] == {"BinaryName": "/bin/crun", **cgroup}
    if about.untouched:
        assert read(tmp_path)[about.config] == about.files[about.config]
    assert asyncio.run(host.apply("site", "uid", CRUN)).verdict is Verdict.UNCHANGED
    assert asyncio.run(host.remove("site")).verdict is Verdict.CHANGED
    assert read(tmp_path) == about.files
    assert asyncio.run(host.remove("site")).verdict is Verdict.UNCHANGED


@pytest.mark.parametrize(("shape", "release"), [(name, one) for name in BROKEN for one in BROKEN[name][2]])
def test_what_is_broken_is_named_and_left_alone(shape: str, release: str, tmp_path: Path) -> None:
    code, files, _ = BROKEN[shape]
    write(tmp_path, files)
    host = HostConfig(tmp_path, "", release)
    findings = host.check()
    assert not (findings.loads and findings.serves)
    assert findings.findings[0].code == code
    outcome = asyncio.run(host.apply("site", "uid", CRUN))
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, code)
    assert outcome.message
    assert read(tmp_path) == files


@pytest.mark.parametrize("release", ALL)
def test_a_linked_main_file_stays_a_link(release: str, tmp_path: Path) -> None:
    write(tmp_path, {"/etc/node/containerd.toml": LOADS["kubeadm, containerd 1"].files[MAIN]})
    main = tmp_path / MAIN.lstrip("/")
    main.parent.mkdir()
    main.symlink_to("../node/containerd.toml")
    host = HostConfig(tmp_path, "", release)
    outcome = asyncio.run(host.apply("site", "uid", CRUN))
    assert "/etc/node/containerd.toml" in {change.path for change in outcome.files}
    assert os.readlink(main) == "../node/containerd.toml"
    asyncio.run(host.remove("site"))
    assert main.read_bytes() == LOADS["kubeadm, containerd 1"].files[MAIN]


@pytest.mark.parametrize("release", ALL)
def test_mode_and_owner_stay(release: str, tmp_path: Path) -> None:
    write(tmp_path, LOADS["kubeadm, containerd 1"].files)
    main = tmp_path / MAIN.lstrip("/")
    main.chmod(0o600)
    host = HostConfig(tmp_path, "", release)
    for step in (host.apply("site", "uid", CRUN), host.remove("site")):
        assert asyncio.run(step).verdict is Verdict.CHANGED
        assert main.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("release", ONE)
def test_an_inline_table_of_containerd_1_cannot_be_added_to(release: str, tmp_path: Path) -> None:
    files = LOADS["one inline table, containerd 2"].files
    write(tmp_path, files)
    outcome = asyncio.run(HostConfig(tmp_path, "", release).apply("site", "uid", CRUN))
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.INLINE_PLUGINS)
    assert read(tmp_path) == files


def test_a_generated_file_without_a_directory_is_not_edited(tmp_path: Path) -> None:
    path = LOADS["k0s"].config
    files = {path: b"version = 3\n"}
    write(tmp_path, files)
    outcome = asyncio.run(HostConfig(tmp_path, path, "2.2.9").apply("site", "uid", CRUN))
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_DISTRIBUTION)
    assert "add the runtime by the means of the distribution" in outcome.message
    assert read(tmp_path) == files


def test_microk8s_without_its_template_is_not_edited(tmp_path: Path) -> None:
    files = {MICROK8S: LOADS["kubeadm, containerd 1"].files[MAIN]}
    write(tmp_path, files)
    outcome = asyncio.run(HostConfig(tmp_path, MICROK8S, "1.7.34").apply("site", "uid", CRUN))
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_DISTRIBUTION)
    assert read(tmp_path) == files


@pytest.mark.parametrize("system", ["bottlerocket", "talos"])
def test_a_host_that_renders_its_files_is_refused(system: str, tmp_path: Path) -> None:
    files = {"/etc/os-release": f"ID={system}\n".encode(), MAIN: b"version = 3\n"}
    write(tmp_path, files)
    outcome = asyncio.run(HostConfig(tmp_path, "", "2.2.9").apply("site", "uid", CRUN))
    assert (outcome.verdict, outcome.reason) == (Verdict.REFUSED, Code.UNSUPPORTED_DISTRIBUTION)


def test_an_upgrade_of_containerd_moves_our_tables(tmp_path: Path) -> None:
    files = LOADS["kubeadm, containerd 1"].files
    write(tmp_path, files)
    asyncio.run(HostConfig(tmp_path, "", "1.7.34").apply("site", "uid", CRUN))
    newer = HostConfig(tmp_path, "", "2.2.9")
    assert asyncio.run(newer.apply("site", "uid", CRUN)).verdict is Verdict.CHANGED
    assert f"{FOLDER}/runtime-reconciler-site.toml" in read(tmp_path)
    assert b"crun" not in read(tmp_path)[MAIN]
    older = HostConfig(tmp_path, "", "1.7.34")
    assert not older.check().serves  # what is ours for 2.x would replace the CRI section of 1.7
    assert asyncio.run(older.remove("site")).verdict is Verdict.CHANGED
    assert read(tmp_path) == files


def test_our_files_deleted_by_somebody_leave_no_import(tmp_path: Path) -> None:
    files = LOADS["kubeadm, containerd 1"].files
    write(tmp_path, files)
    host = HostConfig(tmp_path, "", "2.2.9")
    asyncio.run(host.apply("site", "uid", CRUN))
    (tmp_path / FOLDER.lstrip("/") / "runtime-reconciler-site.toml").unlink()
    assert asyncio.run(host.remove("site")).verdict is Verdict.CHANGED
    assert read(tmp_path) == files


def test_a_drop_in_whose_import_somebody_took_away_is_not_left_behind(tmp_path: Path) -> None:
    files = LOADS["an imported config.d"].files
    write(tmp_path, files)
    host = HostConfig(tmp_path, "", "2.2.9")
    asyncio.run(host.apply("site", "uid", CRUN))
    assert "/etc/containerd/config.d/runtime-reconciler-site.toml" in read(tmp_path)
    write(tmp_path, LOADS["kubeadm, containerd 2"].files)
    assert asyncio.run(host.remove("site")).verdict is Verdict.CHANGED
    assert read(tmp_path) == {**files, **LOADS["kubeadm, containerd 2"].files}


def test_a_handlers_snapshotter_is_told_to_both_plugins_of_containerd_2(tmp_path: Path) -> None:
    write(tmp_path, LOADS["kubeadm, containerd 1"].files)
    data = RevisionData(handlers=(Handler(name="kata", runtime_type="io.containerd.kata.v2", snapshotter="nydus"),))
    asyncio.run(HostConfig(tmp_path, "", "2.2.9").apply("site", "uid", data))
    assert read(tmp_path)[f"{FOLDER}/runtime-reconciler-site.toml"].decode() == (
        "# Made by runtime-reconciler; `reconciler config remove` takes its part of it away.\n"
        "# runtime-reconciler: begin site\n"
        '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]\n'
        '  runtime_type = "io.containerd.kata.v2"\n'
        '  snapshotter = "nydus"\n'
        '[plugins."io.containerd.cri.v1.images".runtime_platforms.kata]\n'
        '  snapshotter = "nydus"\n'
        "# runtime-reconciler: end site\n"
    )
